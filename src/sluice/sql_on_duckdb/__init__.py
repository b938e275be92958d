"""SQL without Spark: queries by DuckDB over Arrow tables of one moment, changes of rows by the Python API.

`running` sends each statement to the module of its family. What needs Spark raises UnsupportedFeature with the feature "Spark".
"""
