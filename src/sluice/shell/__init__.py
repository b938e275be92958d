"""`sluice sql`: runs statements that people type or schedulers send, and prints their results.

Imports `sql_on_duckdb`, `sql_on_spark` and below. Begin with `running.py`; `engines.py` chooses the engine of each statement.
"""
