"""Translation of source offsets to target offsets."""
