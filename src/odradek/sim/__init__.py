"""The whole cluster in one process under a seeded, simulated event loop."""
