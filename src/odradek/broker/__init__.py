"""One broker process: configuration, connections, one handler per API, wiring, start and stop."""
