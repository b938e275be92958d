"""`sluice.Catalog`: tables by their names. Imports all other rooms and the modules of `tables`.

Begin with `catalog.py`, the class; `manage/naming.py` has the steps of its operations over tables.
"""
