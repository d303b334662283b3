"""Which checkpoints and group offsets are due."""
