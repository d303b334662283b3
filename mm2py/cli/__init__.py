"""Commands: parse, validate, call."""
