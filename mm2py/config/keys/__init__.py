"""The table of keys: one row per setting."""
