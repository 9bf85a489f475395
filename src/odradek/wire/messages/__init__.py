"""One declarative schema per message, a module per API, Kafka's names in snake case."""
