"""Files and their partition values as objects of the JVM: all of them in the same few calls, however many they are.

Each call costs a tenth of a millisecond. So files cross as bytes that Java's own readers take: Hadoop's `ArrayWritable` reads statuses
of files, Java's serialisation reads rows. Method handles then make Spark's objects of them, in a loop inside the JVM.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import SparkSession

from ..jvm import class_of_view

_DIRECTORY: Final = "org.apache.spark.sql.execution.datasources.PartitionDirectory"
_STATUS: Final = "org.apache.hadoop.fs.FileStatus"
_ROW: Final = "org.apache.spark.sql.catalyst.InternalRow"
_UNSAFE: Final = "org.apache.spark.sql.catalyst.expressions.UnsafeRow"
_SEQUENCE: Final = "scala.collection.immutable.ArraySeq"
_BLOCK_BYTES: Final = 128 << 20
_LONG_DIGITS: Final = 18
"""Spark keeps decimals of up to so many digits as 64-bit numbers."""
# Java's serialisation: what it writes before an object, its class, bytes of its own, and where it repeats an object.
_HEADER, _ARRAY, _OBJECT, _CLASS, _BYTES, _AGAIN = b"\xac\xed\x00\x05", b"\x75", b"\x73", b"\x72", b"\x7a", b"\x71"
_END, _NOTHING = b"\x78", b"\x70"
_FIRST_HANDLE: Final = 0x7E0000
_SERIALIZABLE, _OWN_BYTES = 0x02, 0x0C

Cell = int | bytes | None
"""A value in Spark's rows: what fits 64 bits as a number, other values as bytes."""


class JvmFiles:
    """Makes the objects, in the JVM of one session; keeps what does not change there."""

    def __init__(self, spark: SparkSession) -> None:
        self._class_in_jvm = partial(class_of_view, spark._jvm)
        context: Any = spark.sparkContext
        self._gateway: Any = context._gateway
        self._loader = self._class_in_jvm("java.lang.Thread").currentThread().getContextClassLoader()
        self._classes: dict[str, Any] = {}
        self._ids: dict[str, int] = {}
        self._directory: Any = None

    @staticmethod
    def of(spark: SparkSession) -> JvmFiles:
        """The one of the session's JVM."""
        context: Any = spark.sparkContext
        if context._gateway not in _made:
            _made[context._gateway] = JvmFiles(spark)
        return _made[context._gateway]

    def sequence(self, values: Sequence[Any], kind: str = "java.lang.Object") -> Any:
        """A Scala sequence of a few objects."""
        return self._class_in_jvm(_SEQUENCE).unsafeWrapArray(self._array(kind, values))

    def directories(self, files: Sequence[tuple[str, int, int]], schema: Any, rows: Sequence[Sequence[Cell]] | None) -> Any:
        """Spark's PartitionDirectories of files, which are path, size in bytes and time in ms: one for each, with its partition values.
        `rows` are the values, of the JVM's type `schema`; None: there are none, and the files are one directory.
        """
        if not files:
            return self.sequence([])
        kind, data = self._class(_STATUS), struct.pack(">i", len(files)) + b"".join(_status(*each) for each in files)
        writable = self._class_in_jvm("org.apache.hadoop.io.ArrayWritable")(kind)
        writable.readFields(self._class_in_jvm("java.io.DataInputStream")(self._class_in_jvm("java.io.ByteArrayInputStream")(data)))
        statuses = self._class_in_jvm("java.lang.reflect.Array").newInstance(kind, len(files))
        self._class_in_jvm("java.lang.System").arraycopy(writable.get(), 0, statuses, 0, len(files))
        if rows is None:
            directory = self._class_in_jvm(_DIRECTORY)
            return self.sequence([directory.apply(self._class_in_jvm(_ROW).empty(), statuses)])
        handles = self._class_in_jvm("java.lang.invoke.MethodHandles")
        # (row, status) -> directory becomes number -> directory, of the arrays' elements with that number
        if self._directory is None:
            method = self._method(_DIRECTORY, "apply", _ROW, f"[L{_STATUS};")
            self._directory = method.asCollector(self._class(f"[L{_STATUS};"), 1)
        # from an UnsafeRow to a row of the same values that tasks' messages show briefly
        values = self._method(_ROW, "toSeq", "org.apache.spark.sql.types.StructType")
        values = handles.insertArguments(values, 1, self._array("java.lang.Object", [schema]))
        readable = handles.filterReturnValue(values, self._method(_ROW, "fromSeq", "scala.collection.immutable.Seq"))
        make = handles.filterArguments(self._directory, 0, self._array("java.lang.invoke.MethodHandle", [readable]))
        elements = [self._elements(self._rows(rows), _ROW), self._elements(statuses, _STATUS)]
        make = handles.filterArguments(make, 0, self._array("java.lang.invoke.MethodHandle", elements))
        return self._class_in_jvm(_SEQUENCE).unsafeWrapArray(self._computed(make, self._class(_DIRECTORY), len(files)))

    def satisfying(self, predicate: Any, rows: Sequence[Sequence[Cell]]) -> list[bool]:
        """For each row whether it satisfies a predicate of Spark's. Raises what Spark raises for a row."""
        method = self._method("org.apache.spark.sql.catalyst.expressions.BasePredicate", "eval", _ROW).bindTo(predicate)
        handles = self._class_in_jvm("java.lang.invoke.MethodHandles")
        each = handles.filterArguments(method, 0, self._array("java.lang.invoke.MethodHandle", [self._elements(self._rows(rows), _ROW)]))
        answers = self._computed(each, self._class_in_jvm("java.lang.Boolean").TYPE, len(rows))
        return [text.strip() == "true" for text in str(self._class_in_jvm("java.util.Arrays").toString(answers)).strip("[]").split(",")]

    def texts(self, values: Sequence[str]) -> Any:
        """A Java array of texts, none of which contains NUL."""
        if not values:
            return self._array("java.lang.String", [])
        return self._class_in_jvm("java.util.regex.Pattern").compile("\0").split("\0".join(values))

    def _rows(self, rows: Sequence[Sequence[Cell]]) -> Any:
        """A Java array of UnsafeRows; equal ones are one object."""
        data = b"".join(self._serialised(rows))
        return self._class_in_jvm("java.io.ObjectInputStream")(self._class_in_jvm("java.io.ByteArrayInputStream")(data)).readObject()

    def _serialised(self, rows: Sequence[Sequence[Cell]]) -> Iterator[bytes]:
        yield _HEADER + _ARRAY + _class_of(f"[L{_UNSAFE};", 0, _SERIALIZABLE) + _NOTHING + struct.pack(">i", len(rows))
        # the handles before: the array's class, the array, the rows' class and the class that it extends
        kind, following = _FIRST_HANDLE + 2, _FIRST_HANDLE + 4
        seen: dict[tuple[Cell, ...], int] = {}
        for row in map(tuple, rows):
            if row in seen:
                yield _AGAIN + struct.pack(">i", seen[row])
                continue
            packed = _packed(row)
            content = struct.pack(">ii", len(packed), len(row)) + packed
            first = _class_of(_UNSAFE, self._id(_UNSAFE), _OWN_BYTES) + _class_of(_ROW, self._id(_ROW), _SERIALIZABLE) + _NOTHING
            yield _OBJECT + (_AGAIN + struct.pack(">i", kind) if seen else first)
            yield _BYTES + struct.pack(">i", len(content)) + content + _END
            seen[row] = following
            following += 1

    def _elements(self, array: Any, kind: str) -> Any:
        """The method from a number to the array's element."""
        method = self._class_in_jvm("java.lang.invoke.MethodHandles").arrayElementGetter(array.getClass()).bindTo(array)
        return method.asType(method.type().changeReturnType(self._class(kind)))

    def _computed(self, method: Any, returned: Any, count: int) -> Any:
        """A Java array of what a method returns for each number below `count`, which becomes all of its arguments."""
        handles, integer = self._class_in_jvm("java.lang.invoke.MethodHandles"), self._class_in_jvm("java.lang.Integer").TYPE
        order = self._class_in_jvm("java.lang.reflect.Array").newInstance(integer, method.type().parameterCount())
        method = handles.permuteArguments(method, self._class_in_jvm("java.lang.invoke.MethodType").methodType(returned, integer), order)
        proxies = self._class_in_jvm("java.lang.invoke.MethodHandleProxies")
        function = proxies.asInterfaceInstance(self._class("java.util.function.IntFunction"), method)
        array = self._class_in_jvm("java.lang.reflect.Array").newInstance(self._class("java.lang.Object"), count)
        self._class_in_jvm("java.util.Arrays").setAll(array, function)
        return array

    def _method(self, owner: str, name: str, *parameters: str) -> Any:
        kinds = self._array("java.lang.Class", [self._class(each) for each in parameters])
        method = self._class(owner).getMethod(name, kinds)
        return self._class_in_jvm("java.lang.invoke.MethodHandles").publicLookup().unreflect(method)

    def _class(self, name: str) -> Any:
        if name not in self._classes:
            self._classes[name] = self._class_in_jvm("java.lang.Class").forName(name, True, self._loader)
        return self._classes[name]

    def _id(self, name: str) -> int:
        """The number by which Java's serialisation knows the version of a class."""
        if name not in self._ids:
            self._ids[name] = self._class_in_jvm("java.io.ObjectStreamClass").lookup(self._class(name)).getSerialVersionUID()
        return self._ids[name]

    def _array(self, kind: str, values: Sequence[Any]) -> Any:
        array = self._gateway.new_array(self._class_in_jvm(kind), len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array


_made: Final[WeakKeyDictionary[Any, JvmFiles]] = WeakKeyDictionary()


def cells(values: pa.Array) -> list[Cell]:
    """The values of a column as Spark's rows hold them."""
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return list(values.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist())
    if pa.types.is_decimal(kind):
        # their digits without the point: Python's `scaleb` would round more than 28 of them
        unscaled = [None if each is None else int(each) for each in values.view(pa.decimal128(38, 0)).to_pylist()]
        fits = kind.precision <= _LONG_DIGITS
        return [each if each is None or fits else each.to_bytes(each.bit_length() // 8 + 1, "big", signed=True) for each in unscaled]
    return list((values.cast(pa.binary()) if pa.types.is_string(kind) else values).to_pylist())


def _packed(row: Sequence[Cell]) -> bytes:
    """An UnsafeRow: a bit for each null, a word for each value, then what does not fit words, by its place and size."""
    width = 8 * ((len(row) + 63) // 64)
    nulls, words, behind = bytearray(width), [], bytearray()
    for place, value in enumerate(row):
        if value is None:
            nulls[place >> 3] |= 1 << (place & 7)
            words.append(0)
        elif isinstance(value, bytes):
            words.append((width + 8 * len(row) + len(behind)) << 32 | len(value))
            behind += value + b"\0" * (-len(value) % 8)
        else:
            words.append(int(value))
    return bytes(nulls) + struct.pack(f"<{len(row)}q", *words) + bytes(behind)


def _class_of(name: str, number: int, flags: int) -> bytes:
    """The description of a class without fields. The description of its superclass comes next in the stream."""
    text = name.encode()
    return _CLASS + struct.pack(">H", len(text)) + text + struct.pack(">qBH", number, flags, 0) + _END


def _status(path: str, size: int, time_ms: int) -> bytes:
    """A file's status as Hadoop's FileStatusProto, after its length: type, path, size, permission, owner, group, times, copies, block."""
    name = path.encode()
    body = b"\x08\x02\x12" + _varint(len(name)) + name + b"\x18" + _varint(size) + b"\x22\x03\x08" + _varint(0o644)
    body += b"\x2a\x00\x32\x00\x38" + _varint(max(time_ms, 0)) + b"\x40\x00\x50\x01\x58" + _varint(_BLOCK_BYTES)
    return struct.pack(">i", len(body)) + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
