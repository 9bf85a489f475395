"""The replica layer: this broker's copies of partitions, kept in sync with their leaders."""
