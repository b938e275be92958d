"""What a commit costs is what docs/architecture.md says: waits for the coordinator, requests to the store, counted at both."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import sluice
from benchmarks.scale.store import MemoryS3
from sluice.dev import REGION, HttpServer
from tests.test_docs_tables import rows, section

from .conftest import Place
from .test_round_trips import waits

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64())])
VECTORS = {"delta.enableDeletionVectors": "true"}
_TIMES = 6


@pytest.fixture
def store() -> Iterator[tuple[MemoryS3, dict[str, str]]]:
    application = MemoryS3()
    with HttpServer("127.0.0.1", 0, application) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        keys = {"access_key_id": "a", "secret_access_key": "b", "conditional_put": "true"}
        yield application, {"endpoint_url": f"http://127.0.0.1:{server.port}", "region": REGION, "path_style": "true", **keys}
        server.shutdown()
        thread.join()


def row(number: int) -> pa.Table:
    return pa.table({"id": [number], "n": [0]}, schema=SCHEMA)


def calls(options: dict[str, str], coordinator: str) -> dict[str, Callable[[int], object]]:
    """Each operation that the page lists, to be called with numbers that grow; a number is a row's id."""

    def made(name: str, **properties: str) -> sluice.Table:
        table = sluice.Table.create(f"s3://bucket/{name}", SCHEMA, properties=properties, coordinator=coordinator, storage_options=options)
        table.append(pa.table({"id": list(range(100)), "n": [0] * 100}))
        return table

    plain, vectors, copying, first, second = made("p"), made("v", **VECTORS), made("c"), made("a"), made("b")
    reader = sluice.Table.open(plain.location, coordinator=coordinator, storage_options=options)
    published = sluice.Table.open(plain.location, storage_options=options, consistency="published")

    def joint(number: int) -> None:
        with sluice.transaction(coordinator, tables=[first, second]) as tx:
            tx[first].append(row(number))
            tx[second].append(row(number))

    return {
        "append": lambda number: plain.append(row(number)),
        "DELETE of a row, deletion vectors": lambda number: vectors.delete(f"id = {number}"),
        "UPDATE of a row, deletion vectors": lambda number: vectors.update({"n": "n + 1"}, f"id = {50 + number}"),
        "UPDATE of a row, without": lambda number: copying.update({"n": "n + 1"}, f"id = {number}"),
        "append to two tables, one transaction": joint,
        "snapshot, nothing new": lambda _: reader.snapshot(),
        "snapshot of what is published, nothing new": lambda _: published.snapshot(),
    }


def test_what_commits_and_snapshots_cost(store: tuple[MemoryS3, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The fewest of some calls: threads beside them now and then compare a file of the log, or write a version's checksum."""
    application, options = store
    place = Place("s3://bucket", f"memory://{uuid.uuid4().hex}")
    costs: dict[str, list[str]] = {}
    for name, call in calls(options, place.coordinator).items():
        for number in range(3):
            call(number)
        each: list[Counter[str]] = []
        for number in range(3, 3 + _TIMES):
            before = Counter(application.counts)
            with waits(place, monkeypatch) as seen:
                call(number)
            each.append(Counter(application.counts) - before)
            each[-1]["waits"] = sum(seen.values())
        fewest = {kind: min(count[kind] for count in each) for kind in ("waits", "PUT", "GET", "LIST", "HEAD")}
        costs[name] = [str(fewest[kind] or "") for kind in ("waits", "PUT", "GET", "LIST")]
        assert fewest["HEAD"] == 0
    table = {cells[0]: cells[1:5] for cells in rows(section("architecture.md", "What a commit costs"))}
    assert costs == {name: table[name] for name in costs}
