"""Remote topics: looked at, created, and kept like their source topics in configs and ACLs."""
