"""Operators' changes while the daemon runs, and their storage on the target."""
