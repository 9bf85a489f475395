"""The replica layer: this broker's copies of partitions, kept the same as everybody's."""
