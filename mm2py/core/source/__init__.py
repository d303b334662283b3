"""What to copy, where to continue, and what an outcome means."""
