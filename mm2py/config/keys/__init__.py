"""The table of keys: one row a setting."""
