"""Statements that make, change, name and describe tables and namespaces. Imports `places`, `partitions` and below. Begin with `tables`."""
