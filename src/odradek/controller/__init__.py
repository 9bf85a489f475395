"""The control plane: the active controller elects leaders and informs the other brokers."""
