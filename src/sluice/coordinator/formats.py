"""Format numbers, by which two releases of sluice know what they understand of each other's nodes, and the JSON codec of nodes.

`docs/operations/upgrades.md` says which change raises which number, and what a release does that meets a higher one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import msgspec
import orjson

from ..installation import ENGINE
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from .errors import UnknownFormat

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:
    dataclass_transform = lambda **_: lambda made: made  # noqa: E731 - typing has it since Python 3.11

NODE_PROTOCOL: Final = 6
"""The node protocol: which nodes a table has, and who may write which of them when. Clients of another number do nothing."""
HEAD_FORMAT: Final = 2
"""The highest format of `records.Head` that this release reads, and the one it writes. 2: it has the chain of the log."""
PUBLISHED_FORMAT: Final = 1
"""Likewise for `records.Published`."""
INTENT_FORMAT: Final = 1
"""Likewise for `records.Intent`, including what it declares to have read."""
BATCH_FORMAT: Final = 2
"""Likewise for `records.BatchRecord` and its contents, except the intent of a transaction without a slot. 2: versions have their chain."""
CATALOG_FORMAT: Final = 1
"""Likewise for the records of names: the catalog's, its namespaces', names and dropped tables."""
CONSUMER_FORMAT: Final = 1
"""Likewise for the positions of consumers."""
CONTENTION_FORMAT: Final = 1
"""Likewise for batches of rows of contention."""
QUOTAS_FORMAT: Final = 1
"""Likewise for the quotas of applications."""
RENDERING: Final = 2
"""The highest rendering that this release reads, and the one it writes: how a plan and its transactions become a version's bytes.

1: removed files have the time at which their writer removed them, by its own clock. 2: they have their version's time.
"""


@dataclass(frozen=True, slots=True)
class Release:
    """How a client signs and renders versions, and the highest rendering it understands."""

    engine: str = ENGINE
    rendering: int = RENDERING


_NAMES_SHOWN_MAX: Final = 200
_N = TypeVar("_N", bound="NodeData")
_R = TypeVar("_R", bound="Record")
_T = TypeVar("_T")


class MalformedRecord(InvalidRequest):
    """Raised when a node's data is not a record of the expected kind."""


class NodeData:
    """The contents of a node as JSON: a dataclass whose fields are the keys. `KIND` is its name in errors.

    In nodes that only inform, unknown fields are ignored, and missing ones have their defaults; a node may have no data.
    """

    __slots__ = ()
    KIND: ClassVar[str]

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @classmethod
    def decode(cls: type[_N], data: bytes) -> _N:  # noqa: PYI019 - typing.Self came with Python 3.11
        """From JSON. Raises MalformedRecord."""
        return typed(load(data or b"{}", cls.KIND), cls, cls.KIND)

    @classmethod
    def readable(cls: type[_N], data: bytes) -> _N | None:  # noqa: PYI019
        """From JSON; None if it cannot be read."""
        try:
            return cls.decode(data)
        except MalformedRecord:
            return None


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node_data(kind: str) -> Callable[[type[_T]], type[_T]]:
    """A frozen dataclass of this `KIND` whose fields msgspec knows at once; the `FORMAT` of a record is what its field has by default.

    Otherwise it reads them when it first makes one, and two threads that do so at the same time crash the process (msgspec 0.22).
    """

    def make(cls: type[_T]) -> type[_T]:
        made = dataclass(frozen=True, slots=True)(cls)
        constants: Any = made
        constants.KIND = kind
        if issubclass(made, Record):
            constants.FORMAT = constants.__dataclass_fields__["format"].default
        msgspec.json.Decoder(made)
        return made

    return make


class Record(NodeData):
    """Node data that is decided on, so that an unknown field may be important: it has exactly its fields, one of them `format`.

    `FORMAT` is the highest format it knows; in those before it, it and what it contains lack the fields `LATER`. One that is `CHANGED` in
    its node has the number of the release that reads it, which writes it again.
    """

    __slots__ = ()
    FORMAT: ClassVar[int]
    LATER: ClassVar[frozenset[str]] = frozenset()
    CHANGED: ClassVar = True

    @classmethod
    def decode(cls: type[_R], data: bytes) -> _R:  # noqa: PYI019
        """From JSON. Raises MalformedRecord, and UnknownFormat for a number above `FORMAT`."""
        content = load(data, cls.KIND)
        number = require_number(content.get("format"), cls.FORMAT, f"{cls.KIND}.format")
        if cls.CHANGED:
            content["format"] = cls.FORMAT
        record = typed(content, cls, cls.KIND)
        try:
            if record.encode() == data:  # what sluice writes needs no closer look
                return record
        except orjson.JSONEncodeError as error:
            raise MalformedRecord(f"{cls.KIND} is nested too deeply", kind=cls.KIND) from error
        # check: older-formats-are-read (cls.LATER if number < cls.FORMAT else frozenset() -> frozenset())
        wrong = ", ".join(_inexact(record, content, cls.KIND, cls.LATER if number < cls.FORMAT else frozenset()))
        if wrong:
            text = f"{cls.KIND} {wrong[:_NAMES_SHOWN_MAX]}: it is of a newer version of sluice, or malformed"
            raise MalformedRecord(text, kind=cls.KIND)
        return record


def load(data: bytes, kind: str) -> dict[str, Any]:
    """The JSON object of a record called `kind`. Raises MalformedRecord."""
    try:
        return typed(orjson.loads(data), dict, f"a {kind} record")
    except orjson.JSONDecodeError as error:
        raise MalformedRecord(f"a {kind} record does not parse: {error}", kind=kind) from error


def typed(value: object, kind: type[_T], what: str) -> _T:
    """The value of parsed JSON as a type; a boolean is not a number. Raises MalformedRecord, which names the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).replace("`", "").partition(" - at $")
        raise MalformedRecord(f"{what}{place}: {problem}", kind=what) from error


def one_of(*values: str) -> msgspec.Meta:
    """The rule of a field that has one of these texts."""
    return msgspec.Meta(pattern=rf"^({'|'.join(map(str.__str__, values))})\Z")


def _inexact(record: Any, value: Any, what: str, later: frozenset[str]) -> Iterator[str]:
    """What fields the JSON of a dataclass, or of those in it, lacks or has too many, if it was written before the `later` ones."""
    if is_dataclass(record):
        names = {each.name for each in fields(record)} - later
        for name in sorted(names ^ value.keys()):
            yield f"{'lacks' if name in names else 'has the unknown field'} {what}.{name}"
        for name in names & value.keys():
            yield from _inexact(getattr(record, name), value[name], f"{what}.{name}", later)
    elif isinstance(record, tuple):
        for each, part in zip(record, value, strict=True):
            yield from _inexact(each, part, what, later)


def require_number(value: object, known: int, what: str) -> int:
    """The number of a format or rendering. Raises MalformedRecord for an invalid one, UnknownFormat for one above `known`."""
    number = typed(value, int, what)
    if number < 1:
        raise MalformedRecord(f"{what} is {number}; the first one is 1", kind=what)
    # check: unknown-formats-wait (known -> known + 1_000_000)
    if number > known:
        raise UnknownFormat(
            f"{what} is {number}, this release of sluice knows up to {known}: a client of the newer release that wrote it must continue",
            found=number,
            expected=known,
        )
    return number
