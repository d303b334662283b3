"""The REST interface, the metrics endpoint and the status page."""
