"""The commands of `sluice`, in one module for each thing that they are about; `cli.py` gathers them.

Imports `shell` and every floor below. Begin with `parts.py`: the options and the output that commands share.
"""
