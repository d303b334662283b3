"""What is mirrored, and under which name."""
