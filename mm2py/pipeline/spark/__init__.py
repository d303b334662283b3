"""Spark itself: session, processes, logs, and what all jobs share."""
