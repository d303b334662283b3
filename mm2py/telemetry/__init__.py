"""What happens, as events, log lines and counters."""
