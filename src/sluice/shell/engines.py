"""Chooses the engine of a statement: this process if it can carry it out, else Spark if it is installed.

After USE, names of one part in a statement are those of a namespace. What Spark logs while it starts is held back.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from ..coordinator.errors import NamespaceNotFound
from ..installation import install_command
from ..statements.duckdb.database import NEEDS_SPARK, LocalRequest
from ..statements.duckdb.engine import run
from ..statements.parse.cursor import Name, Span
from ..statements.parse.maintenance import Attach
from ..statements.parse.namespaces import Comment, CreateNamespace, DropNamespace
from ..statements.parse.reading import Other, bare, read
from ..statements.parse.relations import Changes
from ..statements.parse.rows import Insert
from ..statements.parse.tables import Clone, Create, Like, ShowTables, Undrop
from ..statements.places import known_place, opened, parts_of
from ..statements.request import Locks
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, TableNotFound, UnsupportedFeature
from ..tables.catalog import Catalog

AUTO: Final = "auto"
LOCAL: Final = "local"
SPARK: Final = "spark"
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


@dataclass()
class Engines:
    """Carries out statements. `choice` is "auto", "local" or "spark"; `args` are the values of the parameters `:name`.

    "auto" takes this process, and Spark for what needs it: some statements, and queries of more than 256 MiB of data files. Of Spark's
    log only errors are shown, unless `spark_log`.
    """

    choice: str = AUTO
    coordinator: str | None = field(default=None, repr=False)
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    args: Mapping[str, Any] | None = field(default=None, repr=False)
    master: str = "local[*]"
    spark_log: bool = False
    tell: Callable[[str], None] = lambda _: None
    _session: Any = field(default=None, init=False)
    _locks: Locks = field(default_factory=Locks, init=False)
    _namespace: str | None = field(default=None, init=False)

    def run(self, text: str) -> Result:
        """Carry out one statement. Raises sluice's errors, and Spark's for statements that Spark carries out."""
        began = time.monotonic()
        why = "--engine spark"
        text = self._in_namespace(text)
        if self.choice != SPARK:
            place: dict[str, Any] = {"coordinator": self.coordinator, "storage_options": self.storage_options}
            limit = _LOCAL_BYTES_MAX if self.choice == AUTO and _has_spark() else None
            try:
                rows = run(text, self.args, **place, max_bytes=limit, locks=self._locks)
                return Result(rows, "DuckDB" if isinstance(read(text), Other) else "sluice", "", time.monotonic() - began)
            except UnsupportedFeature as refused:
                needs_spark = NEEDS_SPARK in (refused.details.get("features") or ())
                if not (needs_spark and self.choice == AUTO and _has_spark()):
                    raise
                why = str(refused.why)
            except TableNotFound:
                if self._session is None:  # a name may be Spark's own, such as a view of this session
                    raise
                why = "no table of the coordinator has this name"
        if self._session is None and _has_spark():
            self.tell(f"-- starting Spark: this statement needs it ({why})")
        rows = self._on_spark(text)
        assert self._session is not None
        return Result(rows, f"Spark {self._session.version}", why if self.choice != SPARK else "", time.monotonic() - began)

    def use(self, namespace: str) -> None:
        """Take the names of tables without a namespace for those of this one. Raises NamespaceNotFound."""
        names = {each.name.lower(): each.name for each in Catalog(self.coordinator).namespaces()}
        if namespace.lower() not in names:
            near = get_close_matches(namespace.lower(), names, 3, 0.6)
            hint = f"did you mean {' or '.join(names[each] for each in near)}?" if near else "SHOW NAMESPACES lists them"
            raise NamespaceNotFound(f"there is no namespace {namespace}; {hint}", name=namespace)
        self._namespace = names[namespace.lower()]

    def _in_namespace(self, text: str) -> str:
        if self._namespace is None:
            return text
        return in_namespace(text, self._namespace, Catalog(self.coordinator, storage_options=self.storage_options).exists)

    def written(self, text: str) -> str:
        """What an INSERT wrote: rows and version, as the history says; "" for another statement."""
        statement, request = bare(read(self._in_namespace(text))), LocalRequest(text, None, self.coordinator, self.storage_options)
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

    def _on_spark(self, text: str) -> pa.Table:
        if not _has_spark():
            raise InvalidRequest(f"Spark is not installed: {install_command('spark')}")
        from ..statements.spark.engine import sql
        from ..statements.spark.queries import as_arrow

        if self._session is None:
            self._session = self._started()
        frame = sql(self._session, text, self.args, coordinator=self.coordinator, storage_options=self.storage_options)
        return as_arrow(frame) if frame.columns else pa.table({})

    def _started(self) -> Any:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        from ..spark_session import configure

        settings = SparkConf().setAppName("sluice sql").setMaster(self.master)
        settings.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
        builder = SparkSession.Builder().config(conf=settings)
        prepared = configure(builder, coordinator=self.coordinator, storage_options=self.storage_options)
        if self.spark_log or SparkContext._gateway is not None:
            return prepared.getOrCreate()
        with held_back() as stderr:  # the first lines of Spark's log say nothing of the statement
            launch: Any = launch_gateway
            SparkContext._ensure_initialized(gateway=launch(settings, {"stderr": stderr}))
            session = prepared.getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
        return session


def _has_spark() -> bool:
    return importlib.util.find_spec("pyspark") is not None


_BYTES: Final = 1 << 16


@contextmanager
def held_back() -> Iterator[int]:
    """A descriptor, the standard error for a program that the block starts.

    What the program writes while the block runs is shown only if the block raises. What it writes later goes to our standard error.
    """
    reading, writing = os.pipe()
    mark, held, is_over = secrets.token_bytes(16), bytearray(), threading.Event()

    def forward() -> None:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while mark not in held:
                held.extend(pipe.read(_BYTES))
            held[:], _, later = held.partition(mark)
            is_over.set()
            _tell(later)
            while text := pipe.read(_BYTES):
                _tell(text)

    threading.Thread(target=forward, name="sluice-stderr", daemon=True).start()
    failed = True
    try:
        yield writing
        failed = False
    finally:
        os.write(writing, mark)
        is_over.wait()
        os.close(writing)
        if failed:
            _tell(held)


def _tell(text: bytes | bytearray) -> None:
    sys.stderr.write(text.decode(errors="replace"))
    sys.stderr.flush()


_MAKES: Final = (Create, Clone, Like, Undrop)
_NO_TABLES: Final = (CreateNamespace, DropNamespace, ShowTables)


def in_namespace(text: str, namespace: str, exists: Callable[[str], bool]) -> str:
    """The text with the namespace before the names of tables that it makes, and of those that are there (`exists` says of a whole name)."""
    statement, quoted = read(text), "`" + namespace.replace("`", "``") + "`"
    if isinstance(statement, ShowTables) and statement.namespace is None:
        at = text.upper().index("TABLES") + len("TABLES")
        return f"{text[:at]} IN {quoted}{text[at:]}"
    for name, is_made in sorted(_names(statement, text), key=lambda each: each[0].start, reverse=True):
        if len(name.parts) == 1 and (is_made or exists(f"{quoted}.{name.quoted}")):
            text = f"{text[: name.start]}{quoted}.{text[name.start :]}"
    return text


def _names(part: Any, text: str) -> Iterator[tuple[Name, bool]]:
    """The names of tables in a statement, each once, and whether the statement makes that table."""
    if isinstance(part, _NO_TABLES) or (isinstance(part, Comment) and part.what == "namespace"):
        return
    if isinstance(part, tuple):
        for each in part:
            yield from _names(each, text)
    elif isinstance(part, Changes):
        first = part.arguments[0]
        if first.of(text)[0] in "'\"":  # the name of a table in a string; a parameter may be one, too, and names it whole
            inside = Span(first.start + 1, first.end - 1)
            yield Name(parts_of(inside.of(text)), inside.start, inside.end), False
    elif isinstance(part, Name):
        yield part, False
    elif is_dataclass(part):
        for each in fields(part):
            value = getattr(part, each.name)
            is_made = (isinstance(part, _MAKES) and each.name == "target") or (isinstance(part, Attach) and each.name == "name")
            if isinstance(value, Name) and is_made:
                yield value, True
            else:
                yield from _names(value, text)
