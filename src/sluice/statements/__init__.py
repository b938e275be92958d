"""SQL: reads statements, and carries out those about tables of sluice. An engine runs queries and evaluates expressions.

Imports `spark_integration`, `tables` and below. Begin with `run.py`, the dispatcher, and `engine.py`, what it asks of an engine:
`spark/engine.py` and `duckdb/engine.py` are the two. `parse` reads the text.
"""
