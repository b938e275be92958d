"""What the chain of a log proves: `doctor` names the version that was changed, swapped or cut out, without the coordinator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.storage.log.paths import checkpoint_path, commit_path
from tests.raw_chain import file_number

ROWS = pa.table({"id": [1, 2, 3]})
LAST = 8


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def coordinator(tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}-chain"


@pytest.fixture
def table(place: Path, coordinator: str) -> sluice.Table:
    made = sluice.Table.create(place, ROWS.schema, coordinator=coordinator)
    for _ in range(LAST):
        made.append(ROWS)
    return made


def edit(place: Path, version: int, change: Callable[[list[dict[str, Any]]], object]) -> bool:
    path = place / commit_path(version)
    actions = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(actions)
    return path.write_bytes(b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in actions)) > 0


def another_size(actions: list[dict[str, Any]]) -> None:
    next(each["add"] for each in actions if "add" in each)["modificationTime"] += 1


def a_later_time(actions: list[dict[str, Any]]) -> None:
    actions[0]["commitInfo"]["inCommitTimestamp"] += 10**9


def another_file(actions: list[dict[str, Any]]) -> None:
    next(each["add"] for each in actions if "add" in each)["path"] = "another.parquet"


def no_file(actions: list[dict[str, Any]]) -> None:
    actions[:] = [each for each in actions if "add" not in each]


def no_chain(actions: list[dict[str, Any]]) -> None:
    del actions[0]["commitInfo"]["sluice"]["chain"]


def another_predecessor(actions: list[dict[str, Any]]) -> None:
    actions[0]["commitInfo"]["sluice"]["chain"]["previous"] = "0" * 64


def swap(place: Path, one: int, other: int) -> None:
    first, second = (place / commit_path(version) for version in (one, other))
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])


def cut_out(place: Path, version: int) -> None:
    for each in range(version, LAST):
        (place / commit_path(each + 1)).replace(place / commit_path(each))


def cut_off(place: Path, version: int) -> None:
    for each in range(version, LAST + 1):
        (place / commit_path(each)).unlink()


DAMAGE: dict[str, tuple[Callable[[Path], object], Sequence[int], str]] = {
    "a field of one in the middle": (
        lambda place: edit(place, 5, another_size),
        [5],
        "was changed or replaced after its commit: version 6",
    ),
    "the time of one in the middle": (lambda place: edit(place, 5, a_later_time), [5], "version 6 names another SHA-256"),
    "the first": (lambda place: edit(place, 0, lambda actions: actions[-1].update(more={})), [0], "version 1 names another SHA-256"),
    "a file of one in the middle": (lambda place: edit(place, 5, another_file), [5], "version 6 names another SHA-256"),
    "one in the middle loses its file": (lambda place: edit(place, 5, no_file), [5], "version 6 names another SHA-256"),
    "what one says of the one before": (lambda place: edit(place, 5, another_predecessor), [5], "version 6 names another SHA-256"),
    "two apart": (lambda place: (edit(place, 3, another_size), edit(place, 6, another_file)), [3, 6], "another SHA-256"),
    "two neighbours: the later one first": (
        lambda place: (edit(place, 3, another_size), edit(place, 4, another_predecessor)),
        [4],
        "version 5 names another SHA-256",
    ),
    "the chain of one is taken out": (lambda place: edit(place, 5, no_chain), [5], "version 6 names another SHA-256"),
    "two are swapped": (lambda place: swap(place, 3, 6), [3, 6], "has the content of version"),
    "two neighbours are swapped": (lambda place: swap(place, 3, 4), [3, 4], "has the content of version"),
    "the last two are swapped": (lambda place: swap(place, 7, 8), [7, 8], "has the content of version"),
    "one is cut out": (lambda place: cut_out(place, 4), [4], "has the content of version 5"),
    "a file of the last": (lambda place: edit(place, 8, another_file), [8], "does not have the hash of the files that its actions make"),
    "the last loses its file": (lambda place: edit(place, 8, no_file), [8], "does not have the hash of the files"),
    "the one before the last": (lambda place: edit(place, 7, another_size), [7], "or version 8 was, which no later version vouches for"),
}


def errors(place: Path, coordinator: str | None = None) -> list[str]:
    return sorted(each.about for each in sluice.doctor(place, coordinator=coordinator).findings if each.severity == "error")


@pytest.mark.notices("a-file-is-of-its-version", "the-version-before-is-compared", "actions-make-the-files")
@pytest.mark.parametrize("kind", DAMAGE)
def test_the_version_that_was_changed_is_named(table: sluice.Table, place: Path, kind: str) -> None:
    damage, versions, what = DAMAGE[kind]
    damage(place)
    found = [each for each in sluice.doctor(place).findings if each.severity == "error" and each.about.endswith(".json")]
    assert sorted(each.about for each in found) == [commit_path(version) for version in versions], found
    assert all(what in each.what and each.remedy for each in found), found


@pytest.fixture
def cleaned_up(place: Path, coordinator: str) -> sluice.Table:
    """The same table, whose log begins with the checkpoint of version 2."""
    made = sluice.Table.create(place, ROWS.schema, coordinator=coordinator)
    for version in range(1, LAST + 1):
        made.append(ROWS)
        if version == 2:
            assert made.checkpoint() == 2
    for version in range(3):
        (place / commit_path(version)).unlink()
    return made


@pytest.mark.parametrize("kind", [kind for kind, (_, versions, _) in DAMAGE.items() if min(versions) > 2])
def test_it_is_named_after_a_checkpoint_too(cleaned_up: sluice.Table, place: Path, kind: str) -> None:
    damage, versions, what = DAMAGE[kind]
    assert sluice.doctor(place).ok
    damage(place)
    found = [each for each in sluice.doctor(place).findings if each.severity == "error" and each.about.endswith(".json")]
    assert sorted(each.about for each in found) == [commit_path(version) for version in versions], found
    assert all(what in each.what for each in found), found


def forge(place: Path, version: int) -> None:
    """Take a file out of a checkpoint."""
    path = place / checkpoint_path(version)
    rows = pq.read_table(path)
    adds = rows["add"].combine_chunks()
    first = next(index for index, each in enumerate(adds.is_valid().to_pylist()) if each)
    pq.write_table(rows.filter(pa.array([index != first for index in range(rows.num_rows)])), path)


@pytest.mark.notices("checkpoints-have-the-files")
@pytest.mark.parametrize("commit", ["there", "cleaned up"])
def test_a_checkpoint_of_other_files_is_named(cleaned_up: sluice.Table, place: Path, commit: str) -> None:
    version = 2
    if commit == "there":
        version = cleaned_up.checkpoint()
    assert sluice.doctor(place).ok
    forge(place, version)
    found = [each for each in sluice.doctor(place).findings if each.severity == "error"]
    assert [each.about for each in found if "checkpoint" in each.about] == [checkpoint_path(version)]
    assert "lists other files than the commits say" in found[0].what


def test_a_checkpoint_of_another_engine_has_the_same_files(place: Path, coordinator: str) -> None:
    rows = pa.table({"id": [1, 2], "part": ["a b/%ä", "x:y"]})
    table = sluice.Table.create(place, rows.schema, partition_by=["part"], coordinator=coordinator)
    table.append(rows)
    table.append(rows)
    table.delete("id = 1 AND part = 'x:y'")
    deltalake.DeltaTable(place).create_checkpoint()
    assert (place / checkpoint_path(2)).exists()
    assert sluice.doctor(place).findings == ()


def test_a_version_that_was_cut_out_of_the_middle_is_missed(table: sluice.Table, place: Path) -> None:
    (place / commit_path(4)).unlink()
    assert [each for each in errors(place) if each.endswith(".json")] == [commit_path(4)]


def test_what_a_log_alone_does_not_show_the_coordinator_does(table: sluice.Table, place: Path, coordinator: str) -> None:
    """Somebody rewrites a version and all later ones: a chain is no signature."""
    edit(place, 7, another_file)
    before = json.loads((place / commit_path(6)).read_bytes().splitlines()[0])["commitInfo"]["sluice"]["chain"]["files"]
    for version in (7, 8):
        previous = hashlib.sha256((place / commit_path(version - 1)).read_bytes()).hexdigest()

        def rewrite(actions: list[dict[str, Any]], version: int = version, previous: str = previous) -> None:
            nonlocal before
            files = int(before, 16) + sum(file_number(each["add"]) for each in actions if "add" in each)
            before = f"{files % 2**256:064x}"
            actions[0]["commitInfo"]["sluice"]["chain"] = {"version": version, "previous": previous, "files": before}

        edit(place, version, rewrite)
    assert [each for each in errors(place) if each.endswith(".json")] == []
    assert [each for each in errors(place, coordinator) if each.endswith(".json")] == [commit_path(7), commit_path(8)]


@pytest.mark.notices("the-head-vouches-for-the-last-version")
def test_the_head_knows_the_last_version_when_no_record_does(table: sluice.Table, place: Path, coordinator: str) -> None:
    context = table.coordinated.context
    for name in context.coordination.children(context.tree.verdicts) or ():
        context.coordination.delete(f"{context.tree.verdicts}/{name}")
    edit(place, LAST, lambda actions: actions[0]["commitInfo"].update(operation="MERGE"))
    assert errors(place) == []
    assert errors(place, coordinator) == [commit_path(LAST)]


def test_a_log_that_was_cut_off_is_named_with_the_coordinator(table: sluice.Table, place: Path, coordinator: str) -> None:
    cut_off(place, 7)
    assert errors(place) == []
    assert errors(place, coordinator) == [commit_path(7), commit_path(8)]
