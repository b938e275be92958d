"""The session in which rows are changed: the user's, with ANSI rules, beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ...storage.errors import UnsupportedFeature
from ..active_session import copied, set_to
from ..errors import original

_RULES: Final = {"spark.sql.ansi.enabled": "true", "spark.sql.storeAssignmentPolicy": "ANSI"}
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_TASKS: Final = "spark.sql.shuffle.partitions"


def planned_once(session: SparkSession, *, tasks: int | None = None) -> AbstractContextManager[None]:
    """Have Spark plan the jobs of the block once: what it learns by running them helps shuffles only, and each look costs a plan.

    Their shuffles, if there are some, have so many `tasks`.
    """
    return set_to(session, {_ADAPTIVE: "false"} | ({} if tasks is None else {_TASKS: str(tasks)}))


@contextmanager
def session_for_changes(spark: SparkSession) -> Iterator[SparkSession]:
    """A copy of the session with its own settings, active in this thread within the block; temporary views and functions are there.

    Errors of sluice that failed a Spark job leave the block as themselves. Raises UnsupportedFeature for Spark Connect.
    """
    if not hasattr(spark, "_jsparkSession"):
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
