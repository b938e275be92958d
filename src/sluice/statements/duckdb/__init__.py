"""Statements without Spark: DuckDB runs queries over Arrow tables of one moment, and the Python API changes rows.

What needs Spark raises UnsupportedFeature with the feature "Spark". Imports `run` and below; only `database.py` imports DuckDB.
Begin with `engine.py`.
"""
