"""HTTP API, metrics and the web page."""
