"""Cluster metadata: a tree of versioned nodes with watches, ephemerals and atomic multi-ops."""
