"""Kafka's wire format: types, message schemas, generated codecs, record batches, error codes."""
