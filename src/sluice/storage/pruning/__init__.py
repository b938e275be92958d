"""Pruning: what partition values and statistics prove about the rows of a file, so that it need not be read.

Imports `schema`, `expressions` and `actions`. Begin with `predicate.py`; `skipping.py` has the rules, `files.py` the log's facts.
"""
