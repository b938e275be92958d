"""The chain of a log: what every commit says of the one before and of the table's files, whatever it does and whoever renders it.

What it says is computed again from the raw files, by code that shares nothing with what wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.service.store import ANY_VERSION
from sluice.storage.actions import texts
from sluice.storage.log.paths import commit_path
from tests.raw_chain import file_number, misfits
from tests.tables.conftest import Place, flights, present
from tests.tables.elsewhere import former_of, lose_everything

VECTORS = {"delta.enableDeletionVectors": "true"}


def commits(location: str) -> list[bytes]:
    return [each.read_bytes() for each in sorted(Path(location.removeprefix("file://"), "_delta_log").glob("*.json"))]


def info_of(content: bytes) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(content.splitlines()[0]).get("commitInfo", {})
    return found


def chain_of(location: str, version: int) -> Any:
    return info_of(commits(location)[version]).get("sluice", {}).get("chain")


def wrong(location: str) -> list[str]:
    """What does not fit in a log that begins with version 0; of versions without a chain nothing is said."""
    live: dict[tuple[str, str], Mapping[str, Any]] = {}
    found: list[str] = []
    log = commits(location)
    for version, content in enumerate(log):
        actions = [json.loads(line) for line in content.splitlines()]
        for kind in ("remove", "add"):
            for file in (each[kind] for each in actions if kind in each):
                key = file["path"], json.dumps(file.get("deletionVector"))
                if kind == "remove":
                    del live[key]
                else:
                    live[key] = file
        if chain_of(location, version) is not None:
            found += misfits(version, info_of(content), log[version - 1] if version else None, sum(map(file_number, live.values())))
    return found


def restored(table: sluice.Table) -> None:
    table.overwrite(flights(("LAX", 3, 1)))
    table.restore(1)


def merged(table: sluice.Table) -> None:
    table.delete("delay = 1")
    table.upsert(flights(("JFK", 1, 2), ("a b/%", 2, 5)), on=["origin", "month", "delay"])
    table.delete("delay = 2")


def several(table: sluice.Table) -> None:
    with table.begin() as transaction:
        transaction.append(flights(("LAX", 3, 1)))
        transaction.delete("delay = 1")
        transaction.compact()


def taken_back(table: sluice.Table) -> None:
    table.detach()
    assert sluice.Table.attach(table.location, coordinator=table.coordinated.context.coordinator).append(flights(("LAX", 3, 1)))


DONE: dict[str, Callable[[sluice.Table], object]] = {
    "appends": lambda table: [table.append(flights(("a b/%", 1, n))) for n in range(3)],
    "an overwrite": lambda table: table.overwrite(flights(("JFK", 3, 1)), where="origin = 'JFK'"),
    "deletions and an upsert": merged,
    "a compaction": lambda table: (table.append(flights(("JFK", 1, 4))), table.compact()),
    "statistics": lambda table: table.analyze(),
    "a restore": restored,
    "several operations": several,
    "properties and a column": lambda table: (
        table.set_properties({"a": "b"}),
        table.add_columns([sluice.NewColumn(pa.field("more", pa.int64()))]),
    ),
    "detached and attached": taken_back,
}


@pytest.mark.notices("the-chain-counts-files", "the-chain-has-the-version-before", "the-head-knows-the-chain")
@pytest.mark.parametrize("limits", [Limits(), Limits(fast_path=False)], ids=["at once", "by slots"])
@pytest.mark.parametrize("properties", [{}, VECTORS, {"delta.enableRowTracking": "true"}], ids=["plain", "vectors", "row ids"])
@pytest.mark.parametrize("does", DONE)
def test_whatever_a_commit_does(place: Place, does: str, properties: dict[str, str], limits: Limits) -> None:
    place.filled(("JFK", 1, 1), ("JFK", 1, 2), ("EWR", 2, 2), properties=properties)
    table = place.open(limits=limits)
    DONE[does](table)
    assert all(chain_of(place.location, version) for version in range(len(commits(place.location))))
    assert wrong(place.location) == []
    assert sluice.doctor(place.location, coordinator=place.coordinator).findings == ()


@pytest.mark.notices("files-added-again-count-once")
def test_files_that_get_statistics_are_counted_once(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), ("EWR", 2, 2), properties={"delta.dataSkippingNumIndexedCols": "0"})
    table.set_properties({"delta.dataSkippingNumIndexedCols": "32"})
    assert present(table.analyze().commit).version == 3
    table.delete("origin = 'JFK'")
    assert chain_of(place.location, 3)["files"] == chain_of(place.location, 1)["files"]
    assert wrong(place.location) == []


def test_a_large_commit_in_pieces(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.filled(*((f"A{n}", 1, n) for n in range(12)))
    monkeypatch.setattr(texts, "PIECE_BYTES", 300)
    table = place.open(limits=Limits(inline_bytes_max=400))
    table.overwrite(flights(("JFK", 1, 1)))
    table.append(flights(("JFK", 1, 1)))
    assert wrong(place.location) == []


def test_a_clone_begins_a_chain_with_the_files_of_the_original(place: Place, tmp_path: Path) -> None:
    original = place.filled(("a b/%", 1, 1), ("EWR", 2, 2), properties=VECTORS)
    original.delete("delay = 2")
    clone = original.clone(str(tmp_path / "clone"))
    clone.delete("delay = 1")
    clone.append(flights(("JFK", 1, 1)))
    assert chain_of(clone.location, 0)["previous"] == ""
    assert wrong(clone.location) == []
    assert sluice.doctor(clone.location, coordinator=place.coordinator).ok


def test_transactions_over_several_tables(place: Place, tmp_path: Path) -> None:
    tables = [place.create(), replace(place, location=str(tmp_path / "other")).create()]
    for _ in range(2):
        with sluice.transaction(tables=tables) as transaction:
            for each in tables:
                transaction[each].append(flights(("JFK", 1, 1)))
    assert [wrong(each.location) for each in tables] == [[], []]


@pytest.mark.notices("a-chain-begins-with-what-is-there")
def test_an_attached_table_has_a_chain_from_then_on(place: Place) -> None:
    for n in range(3):
        deltalake.write_deltalake(place.location, flights(("a b/%", 1, n)), partition_by=["origin", "month"], mode="append")
    deltalake.DeltaTable(place.location).delete("delay = 1")
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.append(flights(("JFK", 1, 1)))
    assert [chain_of(place.location, version) is not None for version in range(6)] == [False] * 4 + [True] * 2
    assert wrong(place.location) == []
    found = sluice.doctor(place.location, coordinator=place.coordinator)
    assert [(each.severity, each.about) for each in found.findings] == [("note", commit_path(0))]
    assert "versions 0 to 3 have no chain: another engine" in found.findings[0].what
    assert "a new chain begins with version 4" in found.findings[0].what


def test_what_another_engine_writes_in_between_is_named(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    table.detach()
    deltalake.write_deltalake(place.location, flights(("EWR", 2, 2)), partition_by=["origin", "month"], mode="append")
    last = sluice.doctor(place.location)
    assert last.ok
    assert [each.what for each in last.findings] == [
        "version 3 has no chain: another engine, or a release of sluice without chains, wrote there"
    ]
    deltalake.write_deltalake(place.location, flights(("EWR", 2, 3)), partition_by=["origin", "month"], mode="append")
    sluice.Table.attach(place.location, coordinator=place.coordinator).append(flights(("JFK", 1, 2)))
    assert wrong(place.location) == []
    found = sluice.doctor(place.location, coordinator=place.coordinator)
    assert [(each.severity, each.about) for each in found.findings] == [("note", commit_path(3))]
    assert "versions 3 to 4 have no chain" in found.findings[0].what
    assert "a new chain begins with version 5" in found.findings[0].what
    path = Path(place.location, commit_path(4))
    path.write_bytes(path.read_bytes().replace(b'"numRecords', b'"numRecorde'))
    changed = sluice.doctor(place.location)
    assert [each.about for each in changed.findings if each.severity == "error"] == [commit_path(4)]  # the new chain has its digest


def test_a_recovered_table_goes_on_with_its_chain(place: Place) -> None:
    place.filled(("JFK", 1, 1)).append(flights(("EWR", 2, 2)))
    lose_everything(place)
    assert sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), wait_s=0).version == 3
    place.open().append(flights(("EWR", 2, 3)))
    assert all(chain_of(place.location, version) for version in range(5))
    assert wrong(place.location) == []
    assert sluice.doctor(place.location, coordinator=place.coordinator).findings == ()


def test_a_table_whose_last_commit_was_cleaned_up_is_recovered_without_it(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    table.checkpoint()
    Path(place.location, commit_path(1)).unlink()
    lose_everything(place)
    sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), wait_s=0)
    assert info_of(Path(place.location, commit_path(2)).read_bytes())["sluice"]["chain"]["previous"] == ""
    assert sluice.doctor(place.location, coordinator=place.coordinator).ok


def as_before_chains(table: sluice.Table) -> None:
    """The head as a release without chains wrote it."""
    context = table.coordinated.context
    node = context.coordination.read(context.tree.head)
    assert node is not None
    fields = {key: value for key, value in json.loads(node.data).items() if key not in ("digest", "files")}
    context.coordination.write(context.tree.head, json.dumps({**fields, "format": 1}).encode(), version=ANY_VERSION)


def without_chain(location: str, *versions: int) -> None:
    """The files of these versions as a release without chains wrote them."""
    for version in versions:
        path = Path(location, commit_path(version))
        first, *rest = path.read_bytes().splitlines()
        line = json.loads(first)
        del line["commitInfo"]["sluice"]["chain"]
        path.write_bytes(b"\n".join([json.dumps(line).encode(), *rest, b""]))


@pytest.mark.notices("a-chain-begins-with-what-is-there")
@pytest.mark.parametrize("fast_path", [True, False])
def test_a_table_of_an_earlier_release_has_a_chain_from_the_next_commit_on(place: Place, fast_path: bool) -> None:
    table = place.filled(("JFK", 1, 1), ("EWR", 2, 2), properties=VECTORS)
    table.delete("delay = 1")
    table.close()
    without_chain(place.location, 0, 1, 2)
    as_before_chains(table)
    place.open(limits=Limits(fast_path=fast_path)).append(flights(("LAX", 3, 3)))
    place.open().append(flights(("LAX", 3, 3)))
    assert [chain_of(place.location, version) is not None for version in range(5)] == [False] * 3 + [True] * 2
    assert wrong(place.location) == []
    found = sluice.doctor(place.location)
    assert [each.severity for each in found.findings] == ["note"]
    assert "versions 0 to 2 have no chain" in found.findings[0].what
