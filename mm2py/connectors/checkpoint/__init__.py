"""The checkpoint task group: checkpoints and group offsets at the target."""
