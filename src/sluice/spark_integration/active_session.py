"""Sessions of Spark: the active one, which each thread has for itself; copies, settings, and what happens before they stop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog

from ..storage.arguments import checked
from ..storage.errors import UnsupportedFeature
from .errors import original
from .option_tables import texts_of

STORAGE_OPTIONS_VARIABLE: Final = "SLUICE_STORAGE_OPTIONS"
_AUTO_MERGE: Final = "spark.databricks.delta.schema.autoMerge.enabled"
# Ours, and Delta Lake's.
_USER_METADATA: Final = ("spark.sluice.commitInfo.userMetadata", "spark.databricks.delta.commitInfo.userMetadata")
_RULES: Final = {"spark.sql.ansi.enabled": "true", "spark.sql.storeAssignmentPolicy": "ANSI"}
"""Spark's rules where rows are changed."""
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_TASKS: Final = "spark.sql.shuffle.partitions"


def is_classic(spark: SparkSession) -> bool:
    """Whether the session has a JVM beside it; over Spark Connect it has none."""
    return hasattr(spark, "_jsparkSession")


def sparks_catalog(spark: SparkSession) -> Catalog:
    """PySpark's own `spark.catalog`, which knows no names of sluice's."""
    return Catalog(spark) if is_classic(spark) else spark.catalog


@checked
def use_session(spark: SparkSession) -> None:
    """Make this the calling thread's session. Call it before the first use in any thread other than the one that made the session.

    Otherwise Spark reports DATA_SOURCE_NOT_FOUND there: it looks for Python data sources in the thread's session. Does
    nothing for Spark Connect, which has no such threads.
    """
    jvm: Any = getattr(spark, "_jvm", None) if is_classic(spark) else None
    if jvm is not None:
        getattr(jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)


def user_metadata_of(spark: SparkSession) -> str | None:
    """The text that histories show with what this session commits; None if it has none."""
    return next((text for name in _USER_METADATA if (text := spark.conf.get(name, ""))), None)


def default_storage_options() -> dict[str, str]:
    """The default options of the object store: those given to `configure`."""
    text = os.environ.get(STORAGE_OPTIONS_VARIABLE)
    return texts_of(STORAGE_OPTIONS_VARIABLE, text) if text else {}


def evolves_schemas(spark: SparkSession) -> bool:
    """Whether Delta Lake's setting lets appends and merges of this session add columns."""
    return str(spark.conf.get(_AUTO_MERGE, "false")).lower() == "true"


@contextmanager
def copied(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A copy of a classic session with these settings; it is the thread's own within the block."""
    user: Any = spark
    own = SparkSession(user.sparkContext, user._jsparkSession.cloneSession())
    for name, value in settings.items():
        own.conf.set(name, value)
    use_session(own)
    try:
        yield own
    finally:
        use_session(spark)


@contextmanager
def set_to(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session has these settings within the block."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


# -- changing rows -------------------------------------------------------------------------------------------------------


def planned_once(session: SparkSession, *, tasks: int | None = None) -> AbstractContextManager[None]:
    """Have Spark plan the jobs of the block once: what it learns by running them helps shuffles only, and each look costs a plan. Their
    shuffles, if there are some, have so many `tasks`.
    """
    return set_to(session, {_ADAPTIVE: "false"} | ({} if tasks is None else {_TASKS: str(tasks)}))


@contextmanager
def session_for_changes(spark: SparkSession) -> Iterator[SparkSession]:
    """A copy of the session with its own settings, active in this thread within the block; temporary views and functions are there. Errors
    of sluice that failed a Spark job leave the block as themselves. Raises UnsupportedFeature for Spark Connect.
    """
    if not is_classic(spark):
        raise UnsupportedFeature(
            "rows are changed through the JVM of a classic session, which Spark Connect hides; run this job with a classic session "
            "(SparkSession.builder.master(...)), or use sluice.Table's own operations",
            features=["connect"],
            access="write",
        )
    try:
        with copied(spark, _RULES) as own:
            yield own
    except PySparkException as failed:
        found = original(failed)
        if found is None:
            raise
        raise found from failed


# -- the end of sessions -------------------------------------------------------------------------------------------------

_hooks: Final[list[Callable[[], None]]] = []


def when_stopped(do: Callable[[], None]) -> Callable[[], None]:
    """Call `do` whenever a session of sluice is stopped; works as a decorator."""
    _hooks.append(do)
    return do


def run_stop_hooks() -> None:
    """Call them all, in the order in which they came."""
    for do in _hooks:
        do()
