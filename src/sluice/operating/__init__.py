"""What operators see: one status of a coordinator and all its tables, and the views of it. Nothing below this package knows it.

Imports `tables` and below. Begin with `document.py`, which says what a status has; `status.py` makes it.
"""
