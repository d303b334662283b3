"""Records through a transform: micro-batches on Spark, written at least or exactly once."""
