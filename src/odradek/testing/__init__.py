"""Clusters for tests: broker processes, the faults they can be asked for, and the pytest plugin."""
