"""What the tests of the Python API share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

import sluice
from sluice.storage.stores.memory import MemoryStore

from .pictures import files_below, nodes_of
from .pictures import refused as refused_at

Refused = Callable[..., AbstractContextManager[Any]]
T = TypeVar("T")
FLIGHTS = pa.schema(
    [
        pa.field("origin", pa.string(), nullable=False),
        pa.field("month", pa.int32(), nullable=False),
        pa.field("delay", pa.int64()),
    ]
)


def flights(*rows: tuple[str, int, int | None]) -> pa.Table:
    """Rows of (origin, month, delay)."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, t) for c, t in zip(columns, FLIGHTS.types, strict=True)], schema=FLIGHTS)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as sorted tuples."""
    rows = zip(*(table[c].to_pylist() for c in table.column_names), strict=True)
    return sorted(rows, key=lambda row: [(v is not None, v) for v in row])


def present(value: T | None) -> T:
    """What there must be, such as the commit of a write that changes something."""
    assert value is not None
    return value


def by_another(work: Callable[[], object]) -> None:
    """Do it in a thread of its own, as somebody else does."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(30)


@dataclass(frozen=True)
class Place:
    """Where a test's table is, with the coordinator that goes with it."""

    location: str
    coordinator: str

    def create(self, **options: Any) -> sluice.Table:
        options.setdefault("partition_by", ["origin", "month"])
        return sluice.Table.create(self.location, FLIGHTS, coordinator=self.coordinator, **options)

    def filled(self, *rows: tuple[str, int, int | None], **options: Any) -> sluice.Table:
        """A new table with these rows, in version 1."""
        table = self.create(**options)
        table.append(flights(*rows))
        return table

    def open(self, **options: Any) -> sluice.Table:
        return sluice.Table.open(self.location, coordinator=self.coordinator, **options)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A local location and a coordinator in memory."""
    return Place(str(tmp_path / "flights"), f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def in_memory() -> Iterator[Place]:
    """A location in memory, where puts can be held up and the store's clock can be moved."""
    name = uuid.uuid4().hex
    yield Place(f"memory://{name}", f"memory://{name}")
    MemoryStore.open(name).forget()


@pytest.fixture(params=["memory", "zookeeper"])
def stored(request: pytest.FixtureRequest, in_memory: Place) -> Place:
    """The same, with the twin of the coordinator, and with a real ZooKeeper."""
    if request.param == "memory":
        return in_memory
    return Place(in_memory.location, f"zk://{request.getfixturevalue('zookeeper_hosts')}/{uuid.uuid4().hex}")


@pytest.fixture
def refused(place: Place, tmp_path: Path) -> Refused:
    """`pictures.refused` for the table's store and its coordinator's tree."""
    return lambda error, *words: refused_at(error, *words, leaves=lambda: {**files_below(tmp_path), **nodes_of(place.coordinator)})


@pytest.fixture
def catalog(tmp_path: Path) -> sluice.Catalog:
    """Of a coordinator in memory, with one namespace."""
    catalog = sluice.Catalog(f"memory://{uuid.uuid4().hex}", root=tmp_path / "tables")
    catalog.create_namespace("sales")
    return catalog
