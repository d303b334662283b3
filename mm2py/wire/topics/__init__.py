"""Topics as an administrator sees them: creation, configs, ACLs."""
