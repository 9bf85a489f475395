"""Where replicas go. Pure functions."""
