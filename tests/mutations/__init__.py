"""Checks of the protocol taken out one at a time, and what notices: `make mutate` (docs/mutations.md)."""
