"""Measurements of sluice next to its peers, on the same server in the same run. See `benchmarks.commits`."""
