"""Ours and Apache Kafka 3.9 in turns on one machine, with the same librdkafka client."""
