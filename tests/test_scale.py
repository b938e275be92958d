"""`make bench-scale`: its store, its judgement, and that docs/scale.md shows what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.scale import page
from benchmarks.scale.__main__ import astray
from benchmarks.scale.clients import Spec, writers_of
from benchmarks.scale.measuring import ceiling
from benchmarks.scale.store import MemoryS3
from benchmarks.systems.base import batch
from sluice.dev import HttpServer
from sluice.storage.errors import ObjectNotFound
from sluice.storage.stores.location import open_store
from sluice.storage.stores.objects import ObjectStore
from tests.test_docs_tables import ROOT

POINT = {"sweep": "writers", "system": "sluice", "tables": 1, "clients": 8, "writers": 8, "commits_per_s": 80.0, "versions_per_s": 20.0}
POINT |= {"p50_ms": 90.0, "p99_ms": 150.0, "limit": "waiting: store", "requests": {"PUT": 1.25, "GET": 0.5, "HEAD": 0.0, "LIST": 0.0}}


@pytest.fixture
def served() -> Iterator[tuple[MemoryS3, ObjectStore]]:
    application = MemoryS3()
    with HttpServer("127.0.0.1", 0, application) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "path_style": "true", "conditional_put": "true"}
        yield application, open_store("s3://bucket/t", {**keys, "endpoint_url": f"http://127.0.0.1:{server.port}"})
        server.shutdown()
        thread.join()


def test_the_store_does_what_tables_need_and_counts_it(served: tuple[MemoryS3, ObjectStore]) -> None:
    application, store = served
    assert store.put_if_absent("log/1", b"one")
    assert not store.put_if_absent("log/1", b"two")
    store.put("log/1<&", b"0123456789")
    assert (store.get("log/1"), store.head("log/1<&").size) == (b"one", 10)
    with store.open_input("log/1<&") as stream:
        stream.seek(4)
        assert stream.read(3) == b"456"
    assert (application.counts["PUT"], application.counts["HEAD"]) == (3, 1)
    store.delete("log/1")
    with pytest.raises(ObjectNotFound):
        store.get("log/1")


def test_the_store_lists_in_pages_and_in_order(served: tuple[MemoryS3, ObjectStore]) -> None:
    application, store = served
    for number in range(2100):
        application._put({"wsgi.input": _Body()}, f"bucket/t/log/{number:05}")
    for folder in range(30):
        application._put({"wsgi.input": _Body()}, f"bucket/t/day={folder:02}/file")
    keys = [each.key for each in store.list_from("log/", "log/00050")]
    assert keys == [f"log/{number:05}" for number in range(50, 2100)]
    assert application.counts["LIST"] == 3
    assert len(list(store.list_from("", recursive=True))) == 2130
    assert list(store.list_from("")) == []


class _Body:
    @staticmethod
    def read() -> bytes:
        return b"x"


def test_writers_are_spread_over_the_clients() -> None:
    spec = Spec("sluice", "zk://h", ("a", "b"), clients=3, writers=4, folder=".")
    spread = [writers_of(spec, client) for client in range(3)]
    assert sorted(number for each in spread for number in each) == list(range(8))
    assert max(map(len, spread)) - min(map(len, spread)) <= 1
    assert Spec.from_json(spec.to_json()) == spec


def test_a_row_in_another_table_is_lost_there() -> None:
    ids = [batch(writer, 1)["id"].to_pylist() for writer in range(4)]
    assert astray([ids[0] + ids[1], ids[2] + ids[3]], writers=2) == 0
    assert astray([ids[0] + ids[2], ids[3]], writers=2) == 10


@pytest.mark.parametrize(
    ("cores", "fsync_ms", "expected"),
    [
        ({"leader": 0.2, "store": 0.1, "clients": 1.6, "followers": 0.05, "other": 0.0}, 1.0, "processor: clients"),
        ({"leader": 0.2, "store": 0.1, "clients": 0.2, "followers": 0.05, "other": 1.4}, 1.0, "processor: other programs"),
        ({"leader": 0.9, "store": 0.1, "clients": 0.2, "followers": 0.05, "other": 0.0}, 1.0, "processor: leader"),
        ({"leader": 0.1, "store": 0.9, "clients": 0.2, "followers": 0.05, "other": 0.0}, 1.0, "processor: store"),
        ({"leader": 0.1, "store": 0.1, "clients": 0.2, "followers": 0.05, "other": 0.0}, 1.0, "waiting: store"),
        ({"leader": 0.1, "store": 0.1, "clients": 0.2, "followers": 0.05, "other": 0.0}, 90.0, "waiting: ZooKeeper's disk"),
    ],
)
def test_the_ceiling_is_the_part_that_is_used_up_or_waited_for(cores: dict[str, float], fsync_ms: float, expected: str) -> None:
    assert ceiling(cores, 2, fsync_ms, 20.0, (2.0,)) == expected


def test_money_is_the_requests_times_their_prices() -> None:
    assert page.cost({"PUT": 2.0, "GET": 1.0, "DELETE": 5.0}, page.PRICES["S3 Standard"]) == pytest.approx(10.0 + 0.4)


def test_a_chart_is_drawn_of_any_run() -> None:
    points: list[dict[str, Any]] = [POINT, {**POINT, "writers": 64, "commits_per_s": 200.0}, {**POINT, "system": "delta-rs"}]
    made = page.pictures(points)
    assert set(made) == {"writers-rate.svg", "writers-latency.svg"}
    for text in made.values():
        assert ET.fromstring(text).tag.endswith("svg")
    assert "| sluice | 8 | 1.25 | 0.50 | 0.00 | 0.00 | $6.45 |" in page.tables(points)


def test_the_page_shows_what_was_measured() -> None:
    run = json.loads((page.FOLDER / "measured.json").read_text())
    assert page.written(page.PAGE.read_text(), run) == page.PAGE.read_text(), "`make bench-scale ARGS=--write-docs` writes it"
    assert {path.name: path.read_text() for path in page.FOLDER.glob("*.svg")} == page.pictures(run["points"])
    assert all(each["lost"] == each["duplicated"] == 0 for each in run["points"])


@pytest.mark.slow
@pytest.mark.zookeeper
@pytest.mark.long
def test_a_short_run_finds_each_row_once() -> None:
    options = "--tables 1,3 --clients 2 --writers 2 --seconds 1 --latency-ms 0 --servers 1"
    command = [sys.executable, "-m", "benchmarks.scale", *options.split()]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, result.stderr
    points = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["sweep"], each["system"], each["tables"]) for each in points] == [
        ("tables", "sluice", 1),
        ("tables", "sluice", 3),
        ("clients", "sluice", 10),
        ("writers", "sluice", 1),
        ("writers", "delta-rs", 1),
    ]
    assert all(each["commits"] > 0 and each["lost"] == each["duplicated"] == 0 for each in points)
    assert "verdict: ok" in result.stderr
