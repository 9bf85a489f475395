"""Apache Kafka beside Odradek: one cluster together, one benchmark against each other.

Needs `make peers`, which brings Kafka through Maven into tests/interop/harness/lib.
"""
