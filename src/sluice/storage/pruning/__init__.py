"""What partition values and statistics prove about the rows of a file, so that it need not be read.

Imports `schema` and `expressions`. Begin with `predicate.py`."""
