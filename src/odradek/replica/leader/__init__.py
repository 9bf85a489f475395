"""Leading: what a leader knows of its followers, and serving what is asked of it."""
