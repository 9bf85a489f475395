"""A lean Kafka client on the wire room."""
