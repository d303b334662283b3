"""Text in, frozen settings out."""
