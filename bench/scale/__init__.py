"""What a flow of many partitions costs, and how long busy ones wait: ``python -m bench.scale PART``."""
