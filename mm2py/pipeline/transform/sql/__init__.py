"""Transforms in Spark SQL or Python functions: one streaming query for each."""
