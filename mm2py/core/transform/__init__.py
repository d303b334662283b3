"""Which topics have transforms, and what Connect's do to a record."""
