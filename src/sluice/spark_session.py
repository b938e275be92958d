"""`sluice.configure`: the settings that Spark needs for `format("sluice")`, and sessions whose reads, writes and SQL go to sluice.

Spark runs the phases of a job in Python processes that the JVM starts with the JVM's own environment. So `configure` writes
environment variables, and must be called before the JVM starts. Under `spark-submit` the JVM is already running: export
PYSPARK_PYTHON and SLUICE_COORDINATOR before it, or give `coordinator` as an option of each read and write.
"""

from __future__ import annotations

import json
import logging
import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from .coordinator.api import Address, start_embedded
from .spark_integration.active_session import STORAGE_OPTIONS_VARIABLE
from .spark_integration.session.routing import Builder, send_statements
from .storage.arguments import checked
from .storage.errors import InvalidRequest
from .storage.stores.storage_options import StorageOptions, redact_logs

_log: Final = logging.getLogger(__name__)
_DELTA_LAKE: Final = ("io.delta.sql.DeltaSparkSessionExtension", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
# Where a builder names the jars that have those classes.
_JARS: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


@checked
def configure(
    builder: SparkSession.Builder,
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    application: str | None = None,
    routing: bool = True,
) -> SparkSession.Builder:
    """Prepare a session for sluice: `sluice.configure(SparkSession.builder, coordinator="zk://...").getOrCreate()`.

    `coordinator` and `storage_options` become the defaults of reads and writes, in Spark and in this process; `application`
    is the job's name in the table's history (the script's name by default). An embedded coordinator starts in the
    background, beside Spark, and runs as long as this program. With `routing` the session of the returned builder sends
    `format("sluice")` of its `read` and of its DataFrames' `write` to sluice's own code, which knows all save modes and reads
    with Spark's own scan, and its `sql` to `sluice.sql` (see `spark_integration.session.routing`); `unroute` takes that back.
    Settings of the builder that name Delta Lake's extension and catalog are taken away unless it names Delta Lake's jars, too:
    "delta" then means sluice in the session. Raises InvalidRequest if the JVM is already running with other settings, which it
    would keep.
    """
    root = str(Path(__file__).resolve().parents[1])
    paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    installed = [str(Path(each).resolve()) for each in (*site.getsitepackages(), site.getusersitepackages())]
    if root not in installed and root not in paths:  # not every Python finds sluice
        paths.insert(0, root)
    environment = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable), "PYTHONPATH": os.pathsep.join(paths)}
    if coordinator is not None:
        Address.parse(coordinator)
        environment["SLUICE_COORDINATOR"] = coordinator
    if storage_options is not None:
        StorageOptions.parse(storage_options)
        environment[STORAGE_OPTIONS_VARIABLE] = json.dumps(dict(storage_options))
    if application is not None or "SLUICE_APPLICATION" not in os.environ:
        environment["SLUICE_APPLICATION"] = application or Path(sys.argv[0] or "pyspark").name
    _check_jvm(
        environment, told=[name for name in environment if name.startswith("SLUICE_") and (application or name != "SLUICE_APPLICATION")]
    )
    os.environ.update(environment)
    _leave_out_delta_lake(builder)
    # larger batches from the JVM to Python (the default is 10,000 rows); Spark itself limits their bytes
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    start_embedded(coordinator)
    redact_logs()  # options of reads and writes may be secrets, and py4j logs them
    if not routing:
        return builder
    send_statements(_carried_out)
    return Builder(builder)


def _carried_out(spark: SparkSession, text: str, args: Any, frames: Mapping[str, Any]) -> DataFrame:
    """`spark.sql` of a session of sluice: `frames` are the DataFrames and values that the text names in braces."""
    from .statements.spark.engine import sql

    formatter = SQLStringFormatter(spark)
    try:
        return sql(spark, formatter.format(text, **frames) if frames else text, args)
    finally:
        if frames:
            formatter.clear()


def _leave_out_delta_lake(builder: SparkSession.Builder) -> None:
    """Take the classes of Delta Lake out of a builder's settings where the session will not have them."""
    settings: dict[str, Any] = builder._options
    if any("delta" in str(settings.get(name, "")) for name in _JARS):
        return
    for name, value in list(settings.items()):
        kept = [each for each in str(value).split(",") if each.strip() not in _DELTA_LAKE]
        if len(kept) == len(str(value).split(",")):
            continue
        _log.info("the setting %s=%s is left out: the tables are sluice's", name, value)
        if kept:
            settings[name] = ",".join(kept)
        else:
            del settings[name]


def _check_jvm(environment: Mapping[str, str], told: list[str]) -> None:
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    for name in told:
        has = gateway.jvm.System.getenv(name)
        if has != environment[name]:
            raise InvalidRequest(
                f"the JVM was started with another value of {name}, and its processes keep the environment of its start; "
                "call sluice.configure before the first session is made (under spark-submit export the variable), "
                "or give options to each read and write",
                variable=name,
            )
