"""Comparing both sides of a flow on Spark; nothing is written."""
