"""The REST interface, the metrics' address and the status page: who asks, and what a node answers."""
