"""Which offset at the target a source offset has become."""
