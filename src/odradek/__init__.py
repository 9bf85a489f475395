"""Odradek: a Kafka-compatible replicated log."""
