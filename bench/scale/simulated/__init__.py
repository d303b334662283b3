"""Brokers that are simulated, for what a flow of more partitions costs than real brokers of this machine can hold."""
