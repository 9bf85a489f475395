"""One handler per API, a module each."""
