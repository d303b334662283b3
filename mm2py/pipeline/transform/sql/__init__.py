"""Transforms in Spark SQL or Python functions: planned by Spark, run as jobs."""
