"""Asking mirrored clusters where their records come from and which offsets mean the same."""
