"""The files of a table's version as Spark's own scan asks for them while it plans: only those that a query's conditions leave.

Spark calls an object of Python through py4j, on the thread that plans: the caller's, or one of Spark's own, while the caller waits.
So nothing here takes a lock, and what a call needs was read before.

Spark's scan knows each row's position while it still reads in batches and skips row groups. The deleted rows of a file come to it as bits,
one for each row up to the last deleted one, in a partition value of that file: the cost per row does not depend on how many are deleted.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...storage.actions.features import RowIdColumns
from ...storage.actions.filetable import picked
from ...storage.actions.records import DeletionVector
from ...storage.actions.uris import absolute
from ...storage.caches import at_once
from ...storage.data.vectors import Rows, positions_of, read_vector
from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError, UnsupportedFeature
from ...storage.expressions import build
from ...storage.expressions.evaluate import may_fail
from ...storage.expressions.nodes import Node
from ...storage.pruning.predicate import Predicate
from ...storage.schema.mapping import physical_name
from ...storage.schema.partitions import decode_column, partition_texts, uri_to_path
from ...storage.schema.schema import PrimitiveType, StructField, StructType
from ...storage.stores.objects import ObjectStore
from ..errors import known_to_spark, missing_file
from ..jvm import analysed, class_in_jvm, column_of, has_subquery, items, quoted
from ..schemas import to_spark
from .catalyst import attribute_named, predicate_in
from .jvm_files import Cell, JvmFiles, cells

Lost: TypeAlias = "Callable[[pa.Table], Mapping[str, Rows]]"
"""The deleted rows of some files of a table, by path; files without deleted rows are left out."""

_THREADS: Final = 16
_BITS: Final = 8
_OBJECTS: Final = "org.apache.spark.sql.catalyst.expressions.objects"


def deleted_rows(store: ObjectStore, files: pa.Table) -> dict[str, Rows]:
    """The deleted rows of the files with a deletion vector, by path. Raises the errors of `read_vector`."""
    files = files.select(["path", "deletion_vector"]).filter(pc.is_valid(files["deletion_vector"]))
    if not files.num_rows:
        return {}
    vectors = [DeletionVector(**each) for each in files["deletion_vector"].to_pylist()]
    read = at_once(partial(read_vector, store), vectors, _THREADS, "sluice-vectors")
    return dict(zip(files["path"].to_pylist(), read, strict=True))


def bits_of(rows: Rows) -> bytes | None:
    """The bits of all positions up to the last deleted one. It takes time for each deleted row and each byte, not for each row."""
    if not rows:
        return None
    positions = positions_of(rows).cast(pa.int64())
    places, shifts = pc.shift_right(positions, 3), pc.bit_wise_and(positions, _BITS - 1)
    some = pa.table({"place": places, "bits": pc.shift_left(pa.scalar(1, pa.int64()), shifts)})
    some = some.group_by("place").aggregate([("bits", "sum")]).combine_chunks()
    found = pc.index_in(pa.array(range(rows.max() // _BITS + 1), pa.int64()), value_set=some["place"].chunk(0))
    return bytes(pc.fill_null(some["bits_sum"].chunk(0).take(found), 0).cast(pa.uint8()).to_pylist())


def live_rows(frame: DataFrame, bits: str, row: str) -> DataFrame:
    """The rows of a frame that are not deleted: those whose bit is not set, by the columns of their file's bits and their position. SQL has
    no function for a byte at a place, so Spark's tasks call the method by which Spark itself reads bytes.
    """
    session = frame.sparkSession
    bits, row = quoted(bits), quoted(row)
    # never outside, whatever Spark evaluates first
    place = f"least({row} DIV {_BITS}, CAST(length({bits}) AS BIGINT) - 1)"
    first = int(class_in_jvm(session, "org.apache.spark.unsafe.Platform").BYTE_ARRAY_OFFSET)
    array, offset = items(analysed(frame.select(F.expr(f"{bits} AS bits"), F.expr(f"{first} + {place} AS place"))).projectList())
    sequence = class_in_jvm(session, "org.apache.spark.api.python.PythonUtils").toSeq
    loader = class_in_jvm(session, "java.lang.Thread").currentThread().getContextClassLoader()
    owner = class_in_jvm(session, "java.lang.Class").forName("org.apache.spark.unsafe.Platform", True, loader)
    kind = class_in_jvm(session, "org.apache.spark.sql.types.DataType").fromJson('"byte"')
    static = owner, kind, "getByte", sequence([array.child(), offset.child()]), sequence([])
    call = class_in_jvm(session, f"{_OBJECTS}.StaticInvoke")(*static, True, True, True, class_in_jvm(session, "scala.Option").empty())
    is_set = F.getbit(column_of(session, call), F.expr(f"CAST({row} % {_BITS} AS INT)")) == 1
    return frame.where(F.expr(f"{bits} IS NULL OR {row} DIV {_BITS} >= length({bits})") | ~is_set)


@dataclass(frozen=True, slots=True)
class Hidden:
    """Names of partition columns that the table lacks: the file's number as text, the bits of its deleted rows, the id of its first row,
    and the version of its commit. None: the scan has no such column.
    """

    number: str | None = None
    bits: str | None = None
    base: str | None = None
    version: str | None = None

    @property
    def fields(self) -> list[StructField]:
        """The columns."""
        kinds = {self.number: "string", self.bits: "binary", self.base: "long", self.version: "long"}
        return [StructField(name, PrimitiveType(kind)) for name, kind in kinds.items() if name is not None]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a scan needs to know of a table's version: `storage_options` are those of its store.

    With `row_ids` its rows come with their ids, in columns of these names. `whole` is the table's id if all files of the version are
    read: Spark may use the rows that it keeps of such a scan for another one. `chosen`: the reader named this version.
    """

    location: str
    storage_options: Mapping[str, str]
    schema: StructType
    partition_columns: tuple[str, ...]
    version: int
    row_ids: RowIdColumns | None = None
    whole: str | None = None
    chosen: bool = False


class CallbackFailed(Exception):
    """Carries the number of an error through the JVM, which keeps a callback's traceback as text only."""


_Method = TypeVar("_Method", bound=Callable[..., Any])
_numbers: Final = itertools.count()
_raised: Final[deque[tuple[int, Exception]]] = deque(maxlen=64)
"""What callbacks raised last, with its number; threads add to it without a lock."""
_CARRIED: Final = re.compile(r"sluice-callback-(\d+)")
_NOT_HERE: Final = re.compile("Python Proxy.*Object ID unknown")  # what py4j says where it called an object of another process
_FIRST_ID: Final = (1 + secrets.randbits(40)) << 16  # py4j begins with 0 in each process: none may answer for another one's object


def _kept(method: _Method) -> _Method:
    """Keep what the method raises, for the user's thread to raise it."""

    @wraps(method)
    def call(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            number = next(_numbers)
            _raised.append((number, error))
            raise CallbackFailed(f"sluice-callback-{number}") from error

    return call  # type: ignore[return-value]


def _converting(convert: Callable[[Any], Exception]) -> Callable[[Any], Exception]:
    """In front of PySpark's function that makes exceptions of Java's: gives the error that a callback raised, if that is the cause,
    and MissingObject for a file of ours that is gone.
    """

    @wraps(convert)
    def converted(error: Any) -> Exception:
        text = str(getattr(SparkContext._jvm, "org.apache.spark.util.Utils").exceptionString(error))
        carried = _CARRIED.search(text)
        kept = None if carried is None else dict(_raised).get(int(carried[1]))
        gone = missing_file(text) if kept is None else None
        if gone is not None and any(_plain(str(gone.details["path"])).startswith(each.folder) for each in list(_indexes.values())):
            kept = gone
        if kept is None and _NOT_HERE.search(text):
            kept = UnsupportedFeature("two Python processes read tables in one JVM, which calls one of them only: give each its own JVM")
        if kept is None:
            return convert(error)
        return known_to_spark(kept) if isinstance(kept, SluiceError) else kept

    converted.is_of_sluice = True  # type: ignore[attr-defined]
    return converted


_indexes: Final[WeakValueDictionary[str, FileIndex]] = WeakValueDictionary()


class FileIndex:
    """Implements Spark's interface of this name."""

    class Java:
        """What py4j reads."""

        implements: Final = ["org.apache.spark.sql.execution.datasources.FileIndex"]

    def __init__(self, spark: SparkSession, layout: Layout, schema: StructType, files: pa.Table, lost: Lost | None, hidden: Hidden) -> None:
        """Files of a version, whose columns are those of `schema` and the `hidden` ones. `lost` gives their deleted rows; None: none."""
        self._spark = spark
        self._layout = layout
        self._table_schema = schema
        self._files = files
        self._lost = lost
        self._hidden = hidden
        self._roots: Any = None
        self._size = int(pc.sum(files["size"]).as_py() or 0)
        of_table = [field for name in layout.partition_columns if (field := schema.get(name)) is not None]
        of_files = StructType([*of_table, *hidden.fields])
        self._names = of_files.names
        self.schema = class_in_jvm(spark, "org.apache.spark.sql.types.DataType").fromJson(to_spark(of_files).json())
        self._label = f"{layout.location} version {layout.version}"
        which = f"scan {next(_numbers)}" if layout.whole is None else f"table {layout.whole} {hidden}"
        self._text = f"{self._label}, {files.num_rows} files, {which}"
        self.folder = _plain(hadoop_uri(layout.location)) + "/"
        """The table's folder, as paths in Spark's messages begin."""
        _indexes[self._text] = self

    # Spark's names

    @_kept
    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802
        """The files that conditions leave. Those on partition columns alone, Spark does not evaluate again."""
        chosen = self.chosen(items(partition_filters), items(data_filters))
        paths = [self._spelled(uri) for uri in chosen["path"].to_pylist()]
        statuses = list(zip(paths, chosen["size"].to_pylist(), chosen["modification_time"].to_pylist(), strict=True))
        columns = [self._cells(chosen, name) for name in self._names]
        return JvmFiles.of(self._spark).directories(statuses, self.schema, list(zip(*columns, strict=True)) if columns else None)

    @_kept
    def rootPaths(self) -> Any:  # noqa: N802
        """The table's folder."""
        if self._roots is None:  # Spark asks some ten times while it plans
            root = class_in_jvm(self._spark, "org.apache.hadoop.fs.Path")(hadoop_uri(self._layout.location))
            self._roots = JvmFiles.of(self._spark).sequence([root])
        return self._roots

    @_kept
    def inputFiles(self) -> Any:  # noqa: N802
        """All paths."""
        return JvmFiles.of(self._spark).texts([self._spelled(uri) for uri in self._files["path"].to_pylist()])

    def refresh(self) -> None:
        """A version does not change."""

    def sizeInBytes(self) -> int:  # noqa: N802
        """The bytes of all files, by which Spark chooses how to join."""
        return self._size

    def partitionSchema(self) -> Any:  # noqa: N802
        """The columns whose values belong to files."""
        return self.schema

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        """Nothing was listed before."""
        return class_in_jvm(self._spark, "scala.Option").empty()

    def isTimeTravel(self) -> bool:  # noqa: N802
        """Whether the files never change (since PySpark 4.3)."""
        return True

    def hashCode(self) -> int:  # noqa: N802
        """One number for equal ones."""
        return hash(self._text) & 0x7FFFFFFF

    def equals(self, other: Any) -> bool:
        """Whether another one has the same files; Java hands it over as an object of its own."""
        return other is not None and str(other.toString()) == self._text

    def toString(self) -> str:  # noqa: N802
        """The text that Spark shows in plans; equal indexes have equal texts."""
        return self._text

    def chosen(self, partition_filters: Sequence[Any], data_filters: Sequence[Any]) -> pa.Table:
        """The files that conditions leave, with their number among all."""
        terms, by_spark = list[Node](), list[Any]()
        for tree, is_of_partition in (*((each, False) for each in data_filters), *((each, True) for each in partition_filters)):
            predicate, exact = predicate_in(tree, attribute_named, self._table_schema)
            terms += [] if predicate is None else [predicate.root]
            if is_of_partition and (predicate is None or not exact or may_fail(predicate.root)):
                by_spark.append(tree)
        chosen = self._files.append_column("number", pa.array(range(self._files.num_rows), pa.int64()))
        if terms:
            both, partition_columns = Predicate(build.and_(*terms)), self._layout.partition_columns
            chosen = picked(chosen, both.may_match(self._files, schema=self._table_schema, partition_columns=partition_columns))
        for tree in by_spark:  # conditions on partition values that only Spark can evaluate
            if not chosen.num_rows:
                break
            attributes = tree.references().toSeq()
            columns = [self._cells(chosen, each.name()) for each in items(attributes)]
            condition = class_in_jvm(self._spark, "org.apache.spark.sql.catalyst.expressions.Predicate").create(tree, attributes)
            rows = list(zip(*columns, strict=True)) if columns else [()] * chosen.num_rows
            distinct = list(dict.fromkeys(rows))
            holds = dict(zip(distinct, JvmFiles.of(self._spark).satisfying(condition, distinct), strict=True))
            chosen = picked(chosen, pa.array([holds[row] for row in rows], pa.bool_()))
        return chosen

    def described(self, partition_filters: Sequence[Any], data_filters: Sequence[Any]) -> str:
        """For people: how many files conditions leave, and what they weigh."""
        files = self.chosen(partition_filters, data_filters)
        size = int(pc.sum(files["size"]).as_py() or 0)
        return f"{self._label}: {files.num_rows} of {self._files.num_rows} files, {size} of {self._size} bytes"

    def _cells(self, files: pa.Table, name: str) -> list[Cell]:
        """The files' values in one of the partition columns, as Spark's rows have them."""
        hidden = self._hidden
        if name == hidden.number:
            return [str(number).encode() for number in files["number"].to_pylist()]
        if name == hidden.bits:
            lost = {} if self._lost is None else self._lost(files)
            return [bits_of(lost[uri]) if uri in lost else None for uri in files["path"].to_pylist()]
        if name == hidden.base:
            return list(files["base_row_id"].to_pylist())
        if name == hidden.version:
            return list(files["default_row_commit_version"].to_pylist())
        field = self._table_schema.get(name)
        assert field is not None
        assert isinstance(field.type, PrimitiveType)
        [texts] = partition_texts(files["partition_values"], [physical_name(field)])
        return cells(decode_column(texts, field.type))

    def _spelled(self, uri: str) -> str:
        """A file's path as Hadoop spells it."""
        place = absolute(self._layout.location, uri)
        return hadoop_uri(f"{self._layout.location}/{uri_to_path(uri)}" if place is None else place)


def hadoop_uri(location: str) -> str:
    """A location as Hadoop spells it."""
    return f"s3a://{location.removeprefix('s3://')}" if location.startswith("s3://") else location


def _plain(path: str) -> str:
    """A path without what Java's URIs escape, with one slash after the scheme, as in `file:/a` and `file:///a`."""
    return re.sub(r":/+", ":/", unquote(path), count=1)


def prepare(spark: SparkSession) -> None:
    """Let Java call Python, where what is raised arrives at the user. A program may have started py4j's server itself, on a port that Java
    does not know: Java gets the port on which it listens.
    """
    if not hasattr(captured.convert_exception, "is_of_sluice"):
        setattr(captured, "convert_exception", _converting(captured.convert_exception))  # noqa: B010 - a function of PySpark's
    context: Any = spark.sparkContext
    gateway = context._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    port = gateway._callback_server.get_listening_port()
    server: Any = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    client: Any = server.getCallbackClient()
    if client.getPort() != port:
        server.resetCallbackClient(client.getAddress(), port)
    pool = gateway.gateway_property.pool
    pool.next_id = max(pool.next_id, _FIRST_ID)


TITLE = "== Files of sluice's tables =="


def files_read(session: SparkSession, execution: Any) -> list[str]:
    """A line for each scan of a table in a query (Spark's QueryExecution): how many files its conditions leave; a title before them."""
    lines: list[str] = []
    plan = execution.sparkPlan()
    for leaf in (leaf for part in (plan, *items(plan.subqueriesAll())) for leaf in items(part.collectLeaves())):
        is_scan = leaf.getClass().getSimpleName() == "FileSourceScanExec"
        index = _indexes.get(str(leaf.relation().location().toString())) if is_scan else None
        if index is not None:
            # conditions that Spark finds while the query runs leave fewer
            filters = [each for each in items(leaf.partitionFilters()) if not has_subquery(session, each)]
            lines.append(index.described(filters, items(leaf.dataFilters())))
    return [TITLE, *lines] if lines else []
