"""The control plane: one broker is in office, decides who leads, and tells the others."""
