"""SQL without Spark: DuckDB runs queries over Arrow tables of one moment, and the Python API changes rows.

What needs Spark raises UnsupportedFeature with the feature "Spark". Imports `sql_plain` and below; only `engine.py` imports
DuckDB. Begin with `running.py`, which sends each statement to the module of its family.
"""
