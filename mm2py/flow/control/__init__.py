"""What operators change while the daemon runs, and how the target keeps it."""
