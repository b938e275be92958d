"""Spark's active session, which each thread has for itself, and the text for the history in a session's settings."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

# Ours, and Delta Lake's.
_USER_METADATA: Final = ("spark.sluice.commitInfo.userMetadata", "spark.databricks.delta.commitInfo.userMetadata")


def use_session(spark: SparkSession) -> None:
    """Make this the calling thread's session. Call it before the first use in any thread other than the one that made the session.

    Otherwise Spark reports DATA_SOURCE_NOT_FOUND there: it looks for Python data sources in the thread's session. Does
    nothing for Spark Connect, which has no such threads.
    """
    jvm: Any = getattr(spark, "_jvm", None) if hasattr(spark, "_jsparkSession") else None
    if jvm is not None:
        getattr(jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)


def user_metadata_of(spark: SparkSession) -> str | None:
    """The text that histories show with what this session commits; None if it has none."""
    return next((text for name in _USER_METADATA if (text := spark.conf.get(name, ""))), None)
