"""An epoch inside a Spark task: batches fetched and produced, unopened."""
