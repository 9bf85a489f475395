"""Pipelines: topics decoded, transformed with SQL and landed, as a TOML file describes it."""
