"""SQL on Spark: carries out statements about tables of sluice, and hands all others to Spark unchanged.

Imports `delta`, `spark_integration`, `sql_plain` and below. Begin with `running.py`, which sends each statement to the module
of its family; `statements` (a lower floor) parses the text.
"""
