"""Sends reads, writes, SQL and streams of sluice's sessions to sluice, for tables of sluice; all else stays PySpark's.

PySpark's data sources written in Python get neither the save mode nor the partitioning nor a table's name, and read without
pruning columns. So a session of `configure` is a `Session`, a class derived from PySpark's. A DataFrame is always of PySpark's
own class: so the first such session puts properties of its own in the place of `DataFrame.write`, `DataFrame.writeStream` and
`DataFrame.sparkSession`, and functions in those of `DataFrame.writeTo` and `DataFrame.explain`. They ask whether the DataFrame's session
has `spark.sluice.routing`, and are PySpark's own otherwise. The setting goes with `newSession()` and with the sessions that Spark
clones for streams, which `sparkSession` makes `Session`s, too; setting it to false switches routing off for one session, and
`unroute` takes everything back. Sessions of Spark Connect have other classes, which stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame as AnyDataFrame
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter, DataFrameWriterV2
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from ...storage.arguments import checked
from ...storage.caches import ForkSafeLock
from ..active_session import run_stop_hooks
from ..scan.file_index import files_read
from .names import SessionCatalog
from .reader import Reader, StreamReader
from .writer import StreamWriter, Writer, WriterV2

ROUTING: Final = "spark.sluice.routing"

_lock: Final = ForkSafeLock()
# PySpark's own, for whom sluice did not make the session.
_PYSPARKS: Final[dict[str, Any]] = {
    name: DataFrame.__dict__[name] for name in ("write", "writeTo", "writeStream", "sparkSession", "explain")
}

Statements: TypeAlias = Callable[[SparkSession, str, Any, Mapping[str, Any]], AnyDataFrame]
"""Carries out one statement of a session: its text, the values of its parameters, and the DataFrames that it names in braces."""
_statements: Statements | None = None


def send_statements(to: Statements) -> None:
    """Let `Session.sql` send its statements there. SQL is a floor above this one, so `sluice.configure` names it."""
    global _statements  # noqa: PLW0603 - one for all sessions of the process
    _statements = to


def is_routed(spark: SparkSession) -> bool:
    """Whether a session's reads and writes of sluice's tables go to sluice."""
    return spark.conf.get(ROUTING, "false") == "true"


class Session(SparkSession):
    """A session whose reads of sluice's tables go to sluice."""

    @property
    def read(self) -> DataFrameReader:
        """Like `SparkSession.read`; `format("sluice")` reads with Spark's own scan."""
        return Reader(self) if is_routed(self) else super().read

    @property
    def readStream(self) -> DataStreamReader:  # noqa: N802 - PySpark's name
        """Like `SparkSession.readStream`, also for the names that sluice's coordinator keeps."""
        return StreamReader(self) if is_routed(self) else super().readStream

    @property
    def catalog(self) -> Catalog:  # pyright: ignore[reportIncompatibleVariableOverride] - routing may change, so nothing is cached
        """Like `SparkSession.catalog`, also for the names that sluice's coordinator keeps."""
        return SessionCatalog(self) if is_routed(self) else super().catalog

    def table(self, tableName: str) -> AnyDataFrame:  # noqa: N803 - PySpark's name
        """Like `SparkSession.table`, also for the names that sluice's coordinator keeps."""
        return self.read.table(tableName) if is_routed(self) else super().table(tableName)

    def sql(self, sqlQuery: str, args: Any = None, **kwargs: Any) -> AnyDataFrame:  # noqa: N803 - PySpark's name
        """Like `SparkSession.sql`, also for statements about sluice's tables (`sluice.sql`)."""
        if not is_routed(self):
            return super().sql(sqlQuery, args, **kwargs)
        assert _statements is not None, "`sluice.configure` made this session, and said where statements go"
        return _statements(self, sqlQuery, args, kwargs)

    def stop(self) -> None:
        """Like `SparkSession.stop`; what sluice's statements hold for sessions, such as locks, is let go."""
        run_stop_hooks()
        super().stop()

    def newSession(self) -> SparkSession:  # noqa: N802 - PySpark's name
        """Like `SparkSession.newSession`; the new session is routed as this one is, also where Spark was running before sluice."""
        session = super().newSession()
        session.conf.set(ROUTING, str(is_routed(self)).lower())
        return session


class Builder(SparkSession.Builder):
    """A builder whose session is routed."""

    def __init__(self, builder: SparkSession.Builder) -> None:
        super().__init__()
        self._options = builder._options
        self.config(ROUTING, "true")

    def getOrCreate(self) -> SparkSession:  # noqa: N802 - PySpark's name
        """The session there is, or a new one; from now on routed. A session of Spark Connect is returned as it is."""
        session = super().getOrCreate()
        if type(session) is SparkSession:
            with _lock:
                session.__class__ = Session
                for name, routed in _ROUTED.items():
                    setattr(DataFrame, name, routed)
        return session


@checked
def unroute(session: SparkSession | None = None) -> None:
    """Give PySpark's `DataFrame` back what is its own, and `session` (if given) its class: sluice routes nothing any more. The next session
    that `sluice.configure` makes routes again. `format("sluice")` works as before, by the data source alone.
    """
    with _lock:
        for name, own in _PYSPARKS.items():
            setattr(DataFrame, name, own)
        if isinstance(session, Session):
            session.__class__ = SparkSession  # type: ignore[assignment]
            session.conf.set(ROUTING, "false")


def _session_of(frame: DataFrame) -> SparkSession:
    session: SparkSession = _PYSPARKS["sparkSession"].__get__(frame)
    if type(session) is SparkSession and is_routed(session):
        session.__class__ = Session  # a clone of a routed one, as `foreachBatch` has it
    return session


def _writer_of(frame: DataFrame) -> DataFrameWriter:
    return Writer(frame) if is_routed(frame.sparkSession) else _PYSPARKS["write"].__get__(frame)


def _writer_to_of(frame: DataFrame, table: str) -> DataFrameWriterV2:
    return WriterV2(frame, table) if is_routed(frame.sparkSession) else _PYSPARKS["writeTo"](frame, table)


def _stream_writer_of(frame: DataFrame) -> DataStreamWriter:
    return StreamWriter(frame) if is_routed(frame.sparkSession) else _PYSPARKS["writeStream"].__get__(frame)


@wraps(_PYSPARKS["explain"])
def _explained(frame: DataFrame, extended: bool | str | None = None, mode: str | None = None) -> None:
    _PYSPARKS["explain"](frame, extended, mode)
    session = frame.sparkSession
    if is_routed(session):
        jdf: Any = frame._jdf
        for line in files_read(session, jdf.queryExecution()):
            print(line)  # noqa: T201 - as PySpark does


_ROUTED: Final[dict[str, Any]] = {
    "write": property(_writer_of, doc=_PYSPARKS["write"].__doc__),
    "writeTo": _writer_to_of,
    "writeStream": property(_stream_writer_of, doc=_PYSPARKS["writeStream"].__doc__),
    "sparkSession": property(_session_of, doc=_PYSPARKS["sparkSession"].__doc__),
    "explain": _explained,
}
