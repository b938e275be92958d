"""The commands of `sluice`, by what they concern; `cli.py` gathers them."""
