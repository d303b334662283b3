"""The Kafka protocol; the only room that imports aiokafka."""
