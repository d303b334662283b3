"""Real Kafka brokers on this machine, for the demo, the benchmark and the tests. Production never imports it."""
