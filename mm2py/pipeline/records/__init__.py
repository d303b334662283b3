"""The record pipeline: topics with a transform, as Structured Streaming queries over records."""
