"""`sluice sql`: runs statements that people type or schedulers send, and prints their results.

Imports `spark_session`, `statements` and below. Begin with `running.py`; `engines.py` chooses the engine of each statement.
"""
