"""Load-aware planning: what every replica costs its broker, and the moves that level it."""
