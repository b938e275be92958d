"""The commands of `sluice`, in one module for each group of its help; `cli.py` gathers them.

Imports `shell` and every floor below. Begin with `parts.py`: the options and the output that commands share.
"""
