"""Identity columns: whoever writes, dies or rebuilds the coordinator, no value is given twice, and the mark is true at every version."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sluice
from sluice.coordinator.api import count_on, submit
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.failure_points import FAILPOINTS
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.memory import MemorySession
from sluice.coordinator.service.store import ReplyLost
from sluice.storage.data.numbers import TaskNumbers
from sluice.storage.errors import InvalidRequest
from sluice.storage.schema.datatypes import IDENTITY_KEYS, PrimitiveType, StructField, StructType
from sluice.storage.schema.identity import counter_of, identities, with_marks
from sluice.tables.write import numbering
from tests.killed import until_ended, until_killed
from tests.tables.conftest import Place, present
from tests.tables.elsewhere import former_of, lose_everything
from tests.tables.identity_program import append, appends

LONG = 2**63 - 1


def schema(start: int = 1, step: int = 1, *, explicit: bool = False, name: str = "id") -> pa.Schema:
    said = {
        "delta.identity.start": str(start),
        "delta.identity.step": str(step),
        "delta.identity.allowExplicitInsert": str(explicit).lower(),
    }
    return pa.schema([pa.field(name, pa.int64(), metadata=said), pa.field("name", pa.string())])


def rows(*names: str, **more: list[Any]) -> pa.Table:
    return pa.table({**more, "name": list(names)})


def values(table: sluice.Table, column: str = "id") -> list[int]:
    return sorted(table.refresh().snapshot().to_arrow([column])[column].to_pylist())


def check(table: sluice.Table) -> list[int]:
    """The values of all rows, after a look at every version: each on the grid, none twice, and none beyond the mark."""
    found: list[int] = []
    for version in range(table.refresh().version + 1):
        snapshot = table.snapshot(version)
        [column] = identities(snapshot.struct)
        found = sorted(snapshot.to_arrow(["id"])["id"].to_pylist())
        assert len(set(found)) == len(found)
        assert all((each - column.start) % column.step == 0 for each in found)
        assert not found or column.mark is not None
        assert all(column.number(each) <= column.number(column.mark or 0) for each in found)
    return found


@pytest.fixture
def table(place: Place) -> sluice.Table:
    return sluice.Table.create(place.location, schema(), coordinator=place.coordinator)


# -- operations ---------------------------------------------------------------------------------------------------------


def test_every_operation_numbers_rows(place: Place) -> None:
    table = sluice.Table.create(place.location, schema(10, -3), coordinator=place.coordinator)
    table.append(rows("a", "b", "c"))
    table.append(pa.RecordBatchReader.from_batches(rows("d").schema, [b for n in "def" for b in rows(n).to_batches()]))
    assert check(table) == [-5, -2, 1, 4, 7, 10]
    table.overwrite(rows("b"), where="name = 'b'")
    table.update({"name": "upper(name)"}, "name = 'c'")
    table.delete("name = 'a'")
    table.compact("major")
    found = {each["name"]: each["id"] for each in table.snapshot().to_arrow().to_pylist()}
    assert found == {"C": 4, "d": 1, "e": -2, "f": -5, "b": -8}
    table.overwrite(rows("g"))
    assert check(table) == [-11]
    assert [each.operation for each in table.history()].count("RAISE IDENTITY") == 1


def test_what_is_not_used_is_given_back(table: sluice.Table) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(7):
            yield from rows(*"xyz"[: 1 + number % 3]).to_batches()

    table.append(batches())
    table.append(rows("last"))
    assert check(table) == [*range(1, 15)]


def test_marks_whose_commit_is_not_answered_are_no_outcome_of_the_rows(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(*given: Any, **named: Any) -> None:
        made = submit(*given, **named)
        raise sluice.errors.OutcomeUnknown("no answer", stage="intent", transaction_id=made.transaction_id)

    with monkeypatch.context() as lost:
        lost.setattr(numbering, "submit", unanswered)
        with pytest.raises(sluice.errors.CoordinatorUnavailable, match="no row was written") as caught:
            table.append(rows("a"))
    assert caught.value.retryable
    assert values(table) == []
    table.append(rows("a"))
    assert check(table) == [1]


def test_a_transaction_raises_the_mark_itself_where_nothing_may_come_before_it(table: sluice.Table) -> None:
    commit = present(table.append(rows("a"), if_version=0))
    assert commit.version == 1
    table.append(pa.table({"name": ["b"], "more": [1]}), merge_schema=True)
    with table.begin() as transaction:
        transaction.append(rows("c"))
        transaction.append(rows("d"))
    assert [each.operation for each in table.history()].count("RAISE IDENTITY") == 1
    assert check(table) == [1, 2, 3, 4]


@pytest.mark.notices("restored-marks-stay")
def test_a_restored_mark_stays_when_the_counter_is_lost(table: sluice.Table, place: Place) -> None:
    table.append(rows("a"))
    table.append(rows(*["b"] * 30_000))
    table.restore(version=2)
    former = former_of(place)
    lose_everything(place)
    sluice.recover(place.location, coordinator=place.coordinator, former=former, wait_s=0)
    again = place.open()
    again.append(rows("c"))
    assert values(again)[1] > 30_001


def test_a_table_that_is_replaced_begins_anew_and_one_that_is_restored_goes_on(table: sluice.Table) -> None:
    table.append(rows("a", "b", "c"))
    table.replace(schema(100, 10), rows("r", "s"))
    table.append(rows("t"))
    assert values(table) == [100, 110, 120]
    table.restore(version=2)
    table.append(rows("d"))
    assert values(table) == [1, 2, 3, 4]
    table.append(rows("e"))
    table.restore(version=2)
    table.append(rows("f"))
    assert values(table) == [1, 2, 3, 6], "the value of a row that was taken back is not given again"
    check_mark = identities(table.struct)[0].mark
    assert check_mark is not None
    assert check_mark >= 6


def test_clones_go_on_beyond_what_they_hold(table: sluice.Table, tmp_path: Path, place: Place) -> None:
    table.append(rows("a", "b"))
    clone = table.clone(tmp_path / "clone", coordinator=place.coordinator)
    clone.append(rows("c"))
    table.append(rows("d"))
    found = values(clone)
    assert found[:2] == [1, 2]
    assert len(set(found)) == 3
    assert values(table) == [1, 2, 3]


@pytest.mark.notices("marks-are-never-lowered")
def test_a_mark_is_never_lowered() -> None:
    field = StructField("id", PrimitiveType("long"), metadata=dict(zip(IDENTITY_KEYS, (1, 2, False), strict=True)))
    marked = with_marks(StructType([field]), 50)
    assert identities(marked)[0].mark == 99
    assert identities(with_marks(marked, 20))[0].mark == 99
    assert identities(with_marks(marked, 20, exactly=True))[0].mark == 39
    assert identities(with_marks(marked, 0, exactly=True))[0].mark is None


def test_sync_identity_goes_on_after_given_values_and_never_back(place: Place) -> None:
    table = sluice.Table.create(place.location, schema(explicit=True), coordinator=place.coordinator)
    assert table.sync_identity("id") is None
    table.append(rows("a", "n", id=[50_000, None]))
    table.append(rows("b"))
    assert present(table.sync_identity("ID")).version == table.refresh().version
    table.append(rows("c"))
    table.delete("id > 1")
    assert table.sync_identity("id") is None
    table.append(rows("d"))
    assert [each for each in table.refresh().snapshot().to_arrow()["id"].to_pylist() if each is not None] == [1, 50_002]
    with pytest.raises(InvalidRequest, match="'name' is not an identity column"):
        table.sync_identity("name")


@pytest.mark.notices("identity-values-are-longs")
@pytest.mark.parametrize(("start", "step"), [(LONG - 1, 1), (-LONG, -1), (0, LONG // 2 + 1)])
def test_a_table_without_values_left_refuses_rows_before_it_writes(place: Place, start: int, step: int) -> None:
    table = sluice.Table.create(place.location, schema(start, step), coordinator=place.coordinator)
    table.append(rows("a"))
    table.append(rows("b"))
    version, files = table.refresh().version, sorted(Path(place.location).iterdir())
    with pytest.raises(InvalidRequest, match=r"has not enough values left: .* is beyond BIGINT"):
        table.append(rows("c"))
    assert (table.refresh().version, sorted(Path(place.location).iterdir())) == (version, files)


@pytest.mark.notices("always-generated-means-always")
def test_what_cannot_be_written_is_refused_before_anything_is(table: sluice.Table, place: Place) -> None:
    table.append(rows("a"))
    version = table.version
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: table.append(rows("b", id=[7])), "GENERATED ALWAYS AS IDENTITY"),
        (lambda: table.append(iter(rows("b", ID=[7]).to_batches())), "GENERATED ALWAYS AS IDENTITY"),
        (lambda: table.overwrite(rows("b", id=[7])), "GENERATED ALWAYS AS IDENTITY"),
        (lambda: table.update({"`ID`": "id + 1"}), "values never change"),
        (lambda: table.upsert(rows("a"), on="name"), "replaced as a whole"),
    ]
    for call, why in calls:
        with pytest.raises(InvalidRequest, match=why):
            call()
    assert table.refresh().version == version
    assert check(table) == [1]


def test_a_primary_key_and_an_identity_column_exclude_one_another(place: Place) -> None:
    keyed = pa.schema([schema().field("id"), pa.field("name", pa.string(), nullable=False)])
    properties = {
        "delta.enableDeletionVectors": "true",
        "sluice.conflictPolicy": "maxcompute-delta",
        "sluice.primaryKey": "name",
    }
    with pytest.raises(InvalidRequest, match="would get other numbers in an identity column"):
        sluice.Table.create(place.location, keyed, coordinator=place.coordinator, properties=properties)


@pytest.mark.parametrize("policy", ["delta", "databricks", "maxcompute-table", "maxcompute-transactional"])
def test_raising_the_mark_refuses_nobody(place: Place, policy: str) -> None:
    table = sluice.Table.create(place.location, schema(), coordinator=place.coordinator, properties={"sluice.conflictPolicy": policy})
    table.append(rows("a", "b"))
    with table.begin() as transaction:
        transaction.delete("name = 'a'")
        numbering.raised(place.open().coordinated, counter_of(table.struct), 50_000, (), 30.0)
        assert table.refresh().history(1)[0].operation == "RAISE IDENTITY"
    assert values(table) == [2]


# -- many writers -------------------------------------------------------------------------------------------------------


@pytest.mark.notices("numbers-are-taken-once", "marks-come-before-numbers")
def test_many_writers_give_no_value_twice(place: Place) -> None:
    table = sluice.Table.create(place.location, schema(5, 7), coordinator=place.coordinator)
    sizes = [[1 + (3 * thread + number) % 400 for number in range(6)] for thread in range(6)]
    appends(place.location, place.coordinator, sizes)
    assert len(check(table)) == sum(map(sum, sizes))


@pytest.mark.zookeeper
@pytest.mark.long
def test_many_processes_give_no_value_twice(tmp_path: Path, zookeeper_address: str) -> None:
    table = sluice.Table.create(tmp_path / "t", schema(), coordinator=zookeeper_address)
    sizes = [[[1 + 17 * (process + thread + number) % 900 for number in range(5)] for thread in range(3)] for process in range(3)]

    def run(process: int) -> None:
        order = {"location": table.location, "coordinator": zookeeper_address, "sizes": sizes[process]}
        assert until_ended(appends, order).status == 0

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    assert len(check(table)) == sum(sum(map(sum, each)) for each in sizes)


WORDS = st.lists(st.tuples(st.sampled_from(("append", "batches", "lose", "detach", "loud", "sync")), st.integers(1, 1500)), max_size=8)


@pytest.mark.costly
@settings(max_examples=25, deadline=None)
@given(words=WORDS, start=st.integers(-50, 50), step=st.sampled_from((1, -1, 7, -12)))
def test_no_sequence_of_writes_and_losses_gives_a_value_twice(words: list[tuple[str, int]], start: int, step: int) -> None:
    name = uuid.uuid4().hex
    place = Place(f"memory://{name}", f"memory://{name}")
    table = sluice.Table.create(place.location, schema(start, step, explicit=True), coordinator=place.coordinator)
    total = 0
    for word, count in [*words, ("append", 3)]:
        if word == "lose":
            former = former_of(place)
            lose_everything(place)
            sluice.recover(place.location, coordinator=place.coordinator, former=former, wait_s=0)
            table = place.open()
        elif word == "detach":
            table.detach()
            table = sluice.Table.attach(place.location, coordinator=place.coordinator)
        elif word == "sync":
            table.sync_identity("id")
        elif word == "batches":
            table.append(iter([*rows(*["x"] * count).to_batches(), *rows("y").to_batches()]))
            total += count + 1
        elif word == "append":
            table.append(rows(*["x"] * count))
            total += count
        elif word == "loud":  # two transactions at once, of which one is given up
            first, second = table.begin(), table.begin()
            first.append(rows(*["x"] * count))
            second.append(rows("y"))
            first.abort()
            second.commit()
            total += 1
    assert len(check(table)) == total


def test_a_lost_reply_wastes_numbers_and_gives_none_twice(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = sluice.Table.create(place.location, schema(), coordinator=place.coordinator)
    table.append(rows("a"))
    session = connect(place.coordinator)
    assert isinstance(session, MemorySession)
    plain, lost = MemorySession.apply, [0]

    def apply(self: MemorySession, ops: Any) -> Any:
        answer = plain(self, ops)
        if any(each.path.endswith("/counters") for each in ops) and not lost[0]:
            lost[0] += 1
            raise ReplyLost("lost by the test")
        return answer

    monkeypatch.setattr(MemorySession, "apply", apply)
    table.append(rows("b", "c"))
    assert lost == [1]
    assert check(table) == [1, 4, 5]


# -- losses and other engines ---------------------------------------------------------------------------------------------

MATRIX = [(name, passage, fast) for name in FAILPOINTS for passage in (1, 2) for fast in (False, True)]
UNREACHED = {("data-staged", 2), ("actions-staged", 2)}
SLOTS = {"before-claim", "after-claim", "actions-staged"}


@pytest.mark.zookeeper
@pytest.mark.many
@pytest.mark.shows("numbers-killed")
@pytest.mark.parametrize(
    ("failpoint", "passage", "fast_path"), [each for each in MATRIX if each[:2] not in UNREACHED and not (each[2] and each[0] in SLOTS)]
)
def test_a_writer_killed_at_any_step(failpoint: str, passage: int, fast_path: bool, tmp_path: Path, zookeeper_address: str) -> None:
    """A failure point is passed twice: by the commit that raises the mark, then by the commit of the rows."""
    place = Place(str(tmp_path / "t"), zookeeper_address)
    table = sluice.Table.create(place.location, schema(), coordinator=place.coordinator)
    order = {"location": place.location, "coordinator": place.coordinator, "rows": 7000, "fast_path": fast_path}
    until_killed(append, {**order, "staged": failpoint == "actions-staged"}, failpoint=f"{failpoint}:{passage}")
    others = [place.open(limits=Limits(patience_s=0.05, patience_s_max=0.5)) for _ in range(2)]
    for each in others:
        each.append(rows(*["x"] * 6000))
    found = check(table)
    assert len(found) in (12_000, 19_000)


@pytest.mark.notices("lost-counters-go-on-from-the-log")
def test_counting_goes_on_from_the_mark_when_the_counter_is_lost(place: Place) -> None:
    table = sluice.Table.create(place.location, schema(), coordinator=place.coordinator)
    table.append(rows("a"))
    late = table.begin()
    late.append(rows("late"))
    former = former_of(place)
    lose_everything(place)
    sluice.recover(place.location, coordinator=place.coordinator, former=former, wait_s=0)
    again = place.open()
    again.append(rows("b"))
    with pytest.raises(sluice.errors.SluiceError):
        late.commit()
    assert check(again) == [1, 10_002]


@pytest.mark.notices("tasks-keep-to-their-numbers")
def test_a_task_has_so_many_numbers_and_no_more() -> None:
    take = TaskNumbers(100, 10).of(2)
    assert (take(4), take(6)) == (120, 124)
    with pytest.raises(InvalidRequest, match=r"more than 10 rows.*write with more tasks"):
        take(1)
    with pytest.raises(InvalidRequest, match="tasks 0 to 4095, and this is task 4096"):
        TaskNumbers(100, 10).of(4096)


@pytest.mark.notices("other-engines-count-too")
def test_a_table_counts_on_after_another_engine(place: Place) -> None:
    table = sluice.Table.create(place.location, schema(), coordinator=place.coordinator)
    table.append(rows("a"))
    table.detach()
    log = sorted((Path(place.location) / "_delta_log").glob("*.json"))
    lines = [json.loads(each) for each in log[-1].read_text().splitlines()]
    metadata = next(each["metaData"] for each in lines if "metaData" in each)
    metadata["schemaString"] = metadata["schemaString"].replace('"delta.identity.highWaterMark":1', '"delta.identity.highWaterMark":70')
    assert ":70" in metadata["schemaString"]
    (log[-1].parent / f"{len(log):020}.json").write_text(json.dumps({"metaData": metadata}))
    again = sluice.Table.attach(place.location, coordinator=place.coordinator)
    again.append(rows("b"))
    assert values(again) == [1, 71]


def test_a_detached_table_has_an_exact_mark_and_goes_on_after_what_others_wrote(place: Place) -> None:
    table = sluice.Table.create(place.location, schema(), coordinator=place.coordinator)
    table.append(rows("a", "b", "c"))
    table.detach()
    detached = sluice.Table.open(place.location, consistency="published").snapshot()
    assert identities(detached.struct)[0].mark == 3
    again = sluice.Table.attach(place.location, coordinator=place.coordinator)
    again.append(rows("d"))
    assert values(again) == [1, 2, 3, 4]


def test_numbers_in_flight_are_not_committed_after_a_detach(place: Place) -> None:
    table = sluice.Table.create(place.location, schema(), coordinator=place.coordinator)
    table.append(rows("a"))
    late = table.begin()
    late.append(rows("late"))
    place.open().detach()
    again = sluice.Table.attach(place.location, coordinator=place.coordinator)
    again.append(rows("b"))
    with pytest.raises(sluice.errors.NotCommitted):
        late.commit()
    assert len(check(again)) == 2


@pytest.mark.notices("only-unused-numbers-go-back")
def test_what_others_took_after_them_stays_taken(table: sluice.Table, place: Place) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(*["x"] * 10).to_batches()
        yield from rows("y").to_batches()  # takes a block of twenty
        place.open().append(rows("other"))

    table.append(batches())
    table.append(rows(*["z"] * 30))
    assert len(check(table)) == 42


def test_blocks_grow_with_the_batches(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def counted(*given: Any) -> int:
        asked.append(given)
        return count_on(*given)

    monkeypatch.setattr(numbering, "count_on", counted)
    table.append(iter([batch for _ in range(200) for batch in rows("x").to_batches()]))
    assert check(table) == [*range(1, 201)]
    assert len(asked) < 12
