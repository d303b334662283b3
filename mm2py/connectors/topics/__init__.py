"""Remote topics: listed, created, and kept in step with their sources in configs and ACLs."""
