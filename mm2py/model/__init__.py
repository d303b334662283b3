"""Values and their byte forms: frozen, no I/O."""
