"""A flow's offset translations, and the offset syncs that Java reads."""
