"""Statements by Spark: those about tables of sluice are operations of the DataFrame API, all others go to Spark unchanged.

Imports `run`, `spark_integration` and below. Begin with `engine.py`, which has `sluice.sql`.
"""
