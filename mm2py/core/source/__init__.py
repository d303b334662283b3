"""What to copy, where to go on, and what an outcome means."""
