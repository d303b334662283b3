"""Events, log lines and metrics."""
