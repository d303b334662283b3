"""Which topics have transforms, and Connect's transforms of a record."""
