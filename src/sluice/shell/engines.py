"""Chooses the engine of a statement: this process if it can carry it out, else Spark if it is installed."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from ..coordinator.errors import NamespaceNotFound
from ..installation import install_command
from ..statements.duckdb.database import NEEDS_SPARK
from ..statements.duckdb.request import LocalRequest
from ..statements.duckdb.running import run
from ..statements.parse.reading import Other, bare, read
from ..statements.parse.rows import Insert
from ..statements.places import catalog_of, known_place, opened
from ..statements.session_locks import Locks
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, TableNotFound, UnsupportedFeature
from .held_back import held_back
from .namespaces import in_namespace

AUTO: Final = "auto"
LOCAL: Final = "local"
SPARK: Final = "spark"
ENGINES: Final = (AUTO, LOCAL, SPARK)
_LATEST: Final = 10
"""Transactions among which a statement looks for its own."""
_LOCAL_BYTES_MAX: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Result:
    """A statement's rows, the engine that gave them, why it was that one ("" if there is nothing to say), and how long it took."""

    rows: pa.Table
    engine: str
    why: str
    seconds: float


class Engines:
    """Carries out statements. `choice` is "auto", "local" or "spark"; `args` are the values of the parameters `:name`.

    "auto" takes this process, and Spark for what needs it: some statements, and queries of more than 256 MiB of data files. Of Spark's
    log only errors are shown, unless `spark_log`.
    """

    def __init__(
        self,
        choice: str = AUTO,
        *,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        args: Mapping[str, Any] | None = None,
        master: str = "local[*]",
        spark_log: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tell = tell
        self._choice = choice
        self._coordinator = coordinator
        self._storage_options = storage_options
        self._args = args
        self._master = master
        self._spark_log = spark_log
        self._session: Any = None
        self._locks = Locks()
        self._namespace: str | None = None

    def run(self, text: str) -> Result:
        """Carry out one statement. Raises sluice's errors, and Spark's for statements that Spark carries out."""
        began = time.monotonic()
        why = "--engine spark"
        text = self._in_namespace(text)
        if self._choice != SPARK:
            try:
                return Result(self._here(text), "DuckDB" if _is_query(text) else "sluice", "", time.monotonic() - began)
            except UnsupportedFeature as refused:
                if not self._may_go_to_spark(refused):
                    raise
                why = str(refused.why)
            except TableNotFound:
                if self._session is None:  # a name may be Spark's own, such as a view of this session
                    raise
                why = "no table of the coordinator has this name"
        if self._session is None and importlib.util.find_spec("pyspark") is not None:
            self._tell(f"-- starting Spark: this statement needs it ({why})")
        rows = self._on_spark(text)
        assert self._session is not None
        return Result(rows, f"Spark {self._session.version}", why if self._choice != SPARK else "", time.monotonic() - began)

    def use(self, namespace: str) -> None:
        """Take the names of tables without a namespace for those of this one. Raises NamespaceNotFound."""
        names = {each.name.lower(): each.name for each in catalog_of(LocalRequest("", None, self._coordinator)).namespaces()}
        if namespace.lower() not in names:
            near = get_close_matches(namespace.lower(), names, 3, 0.6)
            hint = f"did you mean {' or '.join(names[each] for each in near)}?" if near else "SHOW NAMESPACES lists them"
            raise NamespaceNotFound(f"there is no namespace {namespace}; {hint}", name=namespace)
        self._namespace = names[namespace.lower()]

    def _in_namespace(self, text: str) -> str:
        if self._namespace is None:
            return text
        catalog = catalog_of(LocalRequest("", None, self._coordinator, self._storage_options))
        return in_namespace(text, self._namespace, catalog.exists)

    def written(self, text: str) -> str:
        """What an INSERT wrote: rows and version, as the history says; "" for another statement."""
        statement, request = bare(read(self._in_namespace(text))), LocalRequest(text, None, self._coordinator, self._storage_options)
        place = known_place(request, statement.target) if isinstance(statement, Insert) else None
        if place is None:
            return ""
        mine = (socket.gethostname(), os.getpid())
        entry = next((each for each in opened(place).history(_LATEST) if (each.host, each.pid) == mine), None)
        return "" if entry is None else f"{entry.metrics.get('numOutputRows', 0)} rows written, version {entry.version}, "

    def close(self) -> None:
        """Release all locks, and end the Spark session, if one was started."""
        self._locks.release()
        if self._session is not None:
            self._session.stop()
            self._session = None

    def _may_go_to_spark(self, refused: UnsupportedFeature) -> bool:
        needs_spark = NEEDS_SPARK in (refused.details.get("features") or ())
        return needs_spark and self._choice == AUTO and importlib.util.find_spec("pyspark") is not None

    def _here(self, text: str) -> pa.Table:
        limit = _LOCAL_BYTES_MAX if self._choice == AUTO and importlib.util.find_spec("pyspark") is not None else None
        return run(
            text,
            self._args,
            coordinator=self._coordinator,
            storage_options=self._storage_options,
            max_bytes=limit,
            locks=self._locks,
        )

    def _on_spark(self, text: str) -> pa.Table:
        if importlib.util.find_spec("pyspark") is None:
            raise InvalidRequest(f"Spark is not installed: {install_command('spark')}")
        from ..statements.spark.frames import as_arrow
        from ..statements.spark.running import sql

        if self._session is None:
            self._session = self._started()
        frame = sql(self._session, text, self._args, coordinator=self._coordinator, storage_options=self._storage_options)
        return as_arrow(frame) if frame.columns else pa.table({})

    def _started(self) -> Any:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        from ..spark_session import configure

        settings = SparkConf().setAppName("sluice sql").setMaster(self._master)
        settings.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
        builder = SparkSession.Builder().config(conf=settings)
        prepared = configure(builder, coordinator=self._coordinator, storage_options=self._storage_options)
        if self._spark_log or SparkContext._gateway is not None:
            return prepared.getOrCreate()
        with held_back() as stderr:  # the first lines of Spark's log say nothing of the statement
            launch: Any = launch_gateway
            SparkContext._ensure_initialized(gateway=launch(settings, {"stderr": stderr}))
            session = prepared.getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
        return session


def _is_query(text: str) -> bool:
    return isinstance(read(text), Other)
