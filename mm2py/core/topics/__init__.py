"""Which remote topics, configs and ACLs there should be."""
