"""Clients' own test suites, against three of our brokers: `make suites`."""
