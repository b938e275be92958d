"""Named consumers: one at a time, each batch once in their outputs, positions that are listed, reset and removed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator.formats import CONSUMER_FORMAT
from sluice.coordinator.leases.consumers import Hold
from sluice.coordinator.leases.lease import held_by_this_thread
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.memory import Fault
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.consumer import Consumer
from tests.tables.conftest import Place, present
from tests.tables.elsewhere import DAY_MS, disk_of, expire_all, former_of, later, lose_everything, service_of

NUMBERS = pa.schema([("n", pa.int64())])
LONG_S = 60.0


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def in_it(table: sluice.Table) -> list[int]:
    found: list[int] = table.refresh().snapshot().to_arrow()["n"].to_pylist()
    return sorted(found)


class Shop:
    """A table with five versions of a row each, and two tables to consume it into."""

    def __init__(self, place: Callable[[str], str], coordinator: str) -> None:
        self.coordinator = coordinator
        self.place = place
        self.source, self.out, self.audit = (sluice.Table.create(place(each), NUMBERS, coordinator=coordinator) for each in ("s", "o", "a"))
        for number in range(1, 6):
            self.source.append(rows(number))

    def recover(self, *tables: sluice.Table) -> list[sluice.Table]:
        """The coordinator loses everything, and these tables are recovered and opened again."""
        lose_everything(Place("", self.coordinator))
        for table in tables:
            sluice.recover(table.location, coordinator=self.coordinator, former=former_of(Place(table.location, "")), wait_s=0.0)
        return [sluice.Table.open(each.location, coordinator=self.coordinator) for each in tables]

    def consumer(self, **options: Any) -> Consumer:
        options = {"into": [self.out], "rows": "inserted", "timeout_s": 0, "wait_s": LONG_S, **options}
        return self.source.consumer("copy", **options)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(lambda name: str(tmp_path / name), f"memory://{uuid.uuid4().hex}")


@pytest.fixture(params=["memory", "zookeeper"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """With the twin in memory, and with a real ZooKeeper."""
    address = request.getfixturevalue("zookeeper_address") if request.param == "zookeeper" else f"memory://{uuid.uuid4().hex}"
    return Shop(lambda name: str(tmp_path / name), address)


def one_version(shop: Shop, *numbers: int) -> int:
    """A version with a file for each number."""
    with shop.source.begin() as tx:
        for number in numbers:
            tx.append(rows(number))
    return shop.source.version


def consumed(consumer: Consumer, batches: int = 100) -> list[int]:
    """Copy up to so many batches; returns their versions."""
    versions: list[int] = []
    for batch in consumer:
        with consumer.transaction() as tx:
            for output in consumer._into.values():
                tx[output].append(batch)
        versions.append(batch.version)
        if len(versions) == batches:
            break
    return versions


# -- consuming -----------------------------------------------------------------------------------------------------------


def test_each_instance_goes_on_where_the_one_before_it_stopped(either: Shop) -> None:
    for count, expected in ((2, [1, 2]), (2, [3, 4]), (2, [5]), (2, [])):
        with either.consumer() as consumer:
            assert consumed(consumer, count) == expected
    assert in_it(either.out) == [1, 2, 3, 4, 5]
    assert held_by_this_thread() == []


def test_results_of_several_outputs_come_together_and_each_records_the_position(shop: Shop) -> None:
    with shop.consumer(into=[shop.out, shop.audit.location], max_versions=10) as consumer:
        assert consumed(consumer) == [5]
        [(number, application)] = {(each.version, name) for name, each in shop.audit.refresh().access.current().app_transactions.items()}
        assert number == 6 << 31, "all versions before 6, and no file of it"
        assert application.endswith(":0:copy")
    assert in_it(shop.out) == in_it(shop.audit) == [1, 2, 3, 4, 5]


def test_a_batch_comes_again_until_it_is_committed(shop: Shop) -> None:
    with shop.consumer(into=[]) as consumer:
        first = next(consumer)
        assert next(consumer) is first
        with pytest.raises(sluice.errors.InvalidRequest, match="no outputs"):
            consumer.transaction()
        consumer.commit()
        with pytest.raises(sluice.errors.InvalidRequest, match="take the next one first"):
            consumer.commit()
        assert next(consumer).version == 2
    with shop.consumer(into=[]) as consumer:
        assert next(consumer).version == 2


def test_a_large_version_is_consumed_file_by_file(either: Shop) -> None:
    version = one_version(either, *range(10, 16))
    with either.consumer(after=5, max_bytes=1) as consumer:
        assert consumed(consumer, 2) == [version] * 2
        assert (consumer.position, consumer.place.files) == (version - 1, 2)
        assert in_it(either.out) == [10, 11]
    [state] = either.source.consumers()
    assert (state.position, state.files, state.behind) == (version - 1, 2, 1)
    with either.consumer(max_bytes=1) as consumer:
        first = next(consumer)
        assert not first.complete
        assert next(consumer) is first
        assert consumed(consumer, 1) == [version]
    with either.consumer(where="n <> 14") as consumer:  # the rest at once; files are counted whatever rows are wanted of them
        assert consumed(consumer) == [version]
        assert (consumer.position, consumer.place.files) == (version, 0)
    assert in_it(either.out) == [10, 11, 12, 13, 15]


def test_a_reset_forgets_the_place_within_a_version(shop: Shop) -> None:
    version = one_version(shop, 10, 11)
    with shop.consumer(after=5, max_bytes=1) as consumer:
        consumed(consumer, 1)
    shop.source.reset_consumer("copy", 5)
    with shop.consumer() as consumer:
        assert consumed(consumer) == [version]
    assert in_it(shop.out) == [10, 10, 11]


def test_a_block_that_raises_consumes_nothing(shop: Shop) -> None:
    with shop.consumer() as consumer:
        batch = next(consumer)

        def fail() -> None:
            with consumer.transaction() as tx:
                tx[shop.out].append(batch)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert next(consumer) is batch
        assert consumed(consumer) == [1, 2, 3, 4, 5]
    assert in_it(shop.out) == [1, 2, 3, 4, 5]


def test_versions_without_rows_move_the_position_of_who_waits(shop: Shop) -> None:
    with shop.consumer() as consumer:
        consumed(consumer)
        shop.source.compact()
        assert list(consumer) == []
        assert consumer.position == 6
    [state] = shop.source.consumers()
    assert (state.position, state.behind, state.bytes_behind) == (6, 0, 0)


def test_a_new_consumer_begins_where_it_says(shop: Shop) -> None:
    with shop.consumer(after=None) as consumer:
        assert consumed(consumer) == []
        shop.source.append(rows(6))
        assert consumed(consumer) == [6]
    with shop.consumer(after=2) as consumer:  # it is not new
        assert consumer.position == 6


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("", {}, "printable"),
        ("a\nb", {}, "printable"),
        ("c", {"into": "o"}, "give a list"),
        ("c", {"max_versions": 0}, "1 or more"),
        ("c", {"max_bytes": 0}, "1 or more"),
        ("c", {"after": 99}, "the latest version is 5"),
        ("c", {"wait_s": "soon"}, "wait_s is 'soon'"),
    ],
)
def test_what_has_no_meaning_is_refused_and_nothing_is_left(shop: Shop, name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=words):
        shop.source.consumer(name, **options)
    assert shop.source.consumers() == []


def test_the_followed_table_is_no_output(shop: Shop) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="would consume what it writes"):
        shop.consumer(into=[shop.source])


# -- one at a time -------------------------------------------------------------------------------------------------------


def test_a_second_instance_is_refused_with_the_name_of_the_first(shop: Shop) -> None:
    with shop.consumer() as first, pytest.raises(sluice.errors.LeaseHeld, match=r"consumer copy.*held by"):
        shop.consumer(wait_s=0)
    with shop.consumer() as second:
        assert second.lease.token > first.lease.token


def test_a_second_instance_waits_for_its_turn(either: Shop) -> None:
    found: list[int] = []

    def second() -> None:
        with either.consumer(wait_s=LONG_S) as consumer:
            found.extend(consumed(consumer))

    thread = threading.Thread(target=second, daemon=True)
    with either.consumer() as first:
        thread.start()
        assert consumed(first, 3) == [1, 2, 3]
    thread.join(LONG_S)
    assert found == [4, 5]
    assert in_it(either.out) == [1, 2, 3, 4, 5]


@pytest.mark.notices("positions-are-fenced")
def test_who_lost_the_lease_does_not_move_the_position(shop: Shop) -> None:
    late = shop.consumer(into=[])
    assert next(late).version == 1
    expire_all(Place("", shop.coordinator))
    with shop.source.consumer("copy", timeout_s=0) as other:
        for _ in range(3):
            next(other)
            other.commit()
    with pytest.raises(sluice.errors.LeaseLost, match="another instance may have gone on"):
        late.commit()
    assert [state.position for state in shop.source.consumers()] == [3]
    assert next(late).version == 4  # it is the consumer again, where the other one stopped
    late.close()


@pytest.mark.notices("consumers-commit-under-their-lease")
@pytest.mark.parametrize("closed", [False, True])
def test_who_lost_the_lease_commits_nothing(shop: Shop, closed: bool) -> None:
    late = shop.consumer()
    batch = next(late)
    tx = late.transaction()
    tx[shop.out].append(batch)
    if closed:
        late.close()
    else:
        expire_all(Place("", shop.coordinator))
    with pytest.raises(sluice.errors.LeaseLost):
        tx.commit()
    assert in_it(shop.out) == []
    if closed:
        return
    assert consumed(late) == [1, 2, 3, 4, 5]
    late.close()
    assert in_it(shop.out) == [1, 2, 3, 4, 5]


def test_a_consumer_that_lost_its_lease_while_it_waited_takes_it_again(shop: Shop) -> None:
    with shop.consumer() as consumer:
        consumed(consumer)
        token = consumer.lease.token
        expire_all(Place("", shop.coordinator))
        assert consumer.lease.lost.wait(LONG_S)
        shop.source.append(rows(6))
        assert consumed(consumer) == [6]
        assert consumer.lease.token > token


def test_closing_ends_the_wait_and_lets_the_next_one_go_on(either: Shop) -> None:
    consumer = either.consumer(timeout_s=None)
    done = threading.Event()

    def run() -> None:
        consumed(consumer, 5)
        done.set()
        consumed(consumer)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert done.wait(LONG_S)
    consumer.close()
    thread.join(LONG_S)
    assert not thread.is_alive()
    with either.consumer() as following:
        assert consumed(following) == []
    assert in_it(either.out) == [1, 2, 3, 4, 5]


# -- exactly once --------------------------------------------------------------------------------------------------------


@pytest.mark.notices("outputs-say-how-far")
@pytest.mark.parametrize("max_versions", [1, 3])
@pytest.mark.parametrize("within", [False, True])
def test_a_position_that_was_not_recorded_is_found_in_the_outputs(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, max_versions: int, within: bool
) -> None:
    class Died(BaseException):
        """The process ends here."""

    def die(*_: object) -> None:
        raise Died

    if within:
        shop.source.overwrite(rows())
        one_version(shop, 1, 2, 3, 4, 5)
        consumer = shop.consumer(after=6, max_bytes=1)
    else:
        consumer = shop.consumer(max_versions=2)
    with monkeypatch.context() as patch:
        patch.setattr(Hold, "move", die)
        with pytest.raises(Died):
            consumed(consumer)
    consumer.close()
    assert [(state.position, state.files) for state in shop.source.consumers()] == [(6 if within else -1, 0)]
    with shop.consumer(max_versions=max_versions) as following:
        assert (following.position, following.place.files) == ((6, 1) if within else (1, 0))
        consumed(following)
    assert in_it(shop.out) == [1, 2, 3, 4, 5]


def test_the_outputs_know_the_position_when_the_coordinator_has_lost_everything(shop: Shop) -> None:
    with shop.consumer() as consumer:
        consumed(consumer, 3)
    source, out = shop.recover(shop.source, shop.out)
    assert source.consumers() == []
    with source.consumer("copy", into=[out], rows="inserted", timeout_s=0) as consumer:
        assert consumer.position == 3
        consumed(consumer)
    assert in_it(out) == [1, 2, 3, 4, 5]


@pytest.mark.notices("half-consumed-is-not-consumed")
def test_an_output_that_lost_its_part_is_told(shop: Shop) -> None:
    both = [shop.out, shop.audit]
    with shop.consumer(into=both) as consumer:
        consumed(consumer, 2)
    # the last version of one output, as if the coordinator's data were lost before it was published
    lost = Path(shop.audit.location.removeprefix("file://")) / "_delta_log" / "00000000000000000002.json"
    lost.unlink()
    opened = shop.recover(shop.source, *both)
    with pytest.raises(sluice.errors.HalfCommitted, match="Write only the missing part"):
        opened[0].consumer("copy", into=opened[1:])


@pytest.mark.notices("outputs-are-as-they-were-left")
def test_a_position_that_somebody_else_moved_is_noticed_before_anything_is_written(shop: Shop) -> None:
    with shop.consumer(max_versions=5) as consumer:
        batch = next(consumer)
        application, _ = consumer.application_for(batch)
        shop.out.append(rows(1, 2), transaction=(application, 3 << 31))
        with pytest.raises(sluice.errors.ConcurrentTransactionException, match=r"records version 2 .* this instance left none there"):
            consumer.transaction()
    with shop.consumer(max_versions=5) as consumer:
        assert consumed(consumer) == [5]
    assert in_it(shop.out) == [1, 2, 3, 4, 5]


def test_a_commit_whose_answer_was_lost_is_found(shop: Shop) -> None:
    """The batch comes again, and its second commit is the first one."""
    with shop.consumer() as consumer:
        batch = next(consumer)
        tx = consumer.transaction()
        tx[shop.out].append(batch)
        tx._concluded = lambda _: None  # type: ignore[method-assign, assignment]
        tx.commit()
        assert next(consumer) is batch
        assert consumed(consumer) == [1, 2, 3, 4, 5]
    assert in_it(shop.out) == [1, 2, 3, 4, 5]


@pytest.mark.notices("a-change-that-was-sent-twice-was-made")
def test_a_lost_reply_to_a_change_of_the_position(shop: Shop) -> None:
    service = service_of(Place("", shop.coordinator))

    def make() -> None:
        shop.consumer(into=[]).close()

    def remove() -> None:
        shop.source.remove_consumer("copy")

    for change in (make, remove):
        armed = [True]
        honest = Hold._apply

        def lossy(hold: Hold, op: Any, armed: list[bool] = armed, honest: Any = honest) -> None:
            if armed:
                armed.clear()
                service.inject(Fault.REPLY_LOST)
            honest(hold, op)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Hold, "_apply", lossy)
            change()
        assert not armed
    assert shop.source.consumers() == []


# -- positions -----------------------------------------------------------------------------------------------------------


@pytest.mark.notices("resets-begin-a-run")
def test_a_consumer_that_is_reset_consumes_again(shop: Shop) -> None:
    with shop.consumer() as consumer:
        consumed(consumer)
        with pytest.raises(sluice.errors.LeaseHeld):
            shop.source.reset_consumer("copy", 1)
    assert shop.source.reset_consumer("copy", 3) == 3
    with shop.consumer() as consumer:
        assert consumed(consumer) == [4, 5]
    assert shop.source.reset_consumer("copy", None) == 5
    assert in_it(shop.out) == [1, 2, 3, 4, 4, 5, 5]


def test_consumers_are_listed_with_their_lag(shop: Shop) -> None:
    assert shop.source.consumers() == []
    with shop.consumer() as consumer:
        consumed(consumer, 3)
        [state] = shop.source.consumers()
    sizes = shop.source.snapshot().files()["size"].to_pylist()
    assert (state.name, state.position, state.behind, state.into) == ("copy", 3, 2, (shop.out.location,))
    assert state.bytes_behind == sum(sizes[-2:])
    assert state.holder == shop.source.coordinated.application
    assert [each.holder for each in shop.source.consumers()] == [""]


def test_a_consumer_is_removed_and_its_outputs_still_say_how_far_it_got(shop: Shop) -> None:
    with shop.consumer() as consumer:
        consumed(consumer, 2)
    shop.source.remove_consumer("copy")
    assert shop.source.consumers() == []
    with pytest.raises(sluice.errors.InvalidRequest, match="it has none"):
        shop.source.remove_consumer("copy")
    with shop.consumer() as consumer:
        assert consumer.position == 2


def test_a_dropped_table_takes_its_consumers_along(shop: Shop) -> None:
    with shop.consumer() as consumer:
        consumed(consumer, 2)
    shop.source.drop()
    again = sluice.Table.create(shop.source.location, NUMBERS, coordinator=shop.coordinator)
    assert again.consumers() == []
    again.append(rows(7))
    with again.consumer("copy", into=[shop.out], rows="inserted", timeout_s=0) as consumer:
        assert consumed(consumer) == [1]
    assert in_it(shop.out) == [1, 2, 7]


def test_a_position_of_a_newer_release_is_left_to_it(shop: Shop) -> None:
    with shop.consumer() as consumer:
        consumed(consumer, 1)
    session, path = connect(shop.coordinator), shop.source.coordinated.context.tree.consumer("copy")
    node = present(session.read(path))
    newer = {**orjson.loads(node.data), "format": CONSUMER_FORMAT + 1, "more": 1}
    session.write(path, orjson.dumps(newer), version=node.version)
    for ask in (shop.consumer, shop.source.consumers, lambda: shop.source.reset_consumer("copy", 0)):
        with pytest.raises(sluice.errors.UnknownFormat, match=r"consumer\.format is 2"):
            ask()
    assert in_it(shop.out) == [1]


def test_the_command_line(shop: Shop) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(main, ["consumers", *words, "--coordinator", shop.coordinator])

    with shop.consumer() as consumer:
        consumed(consumer, 2)
        refused = run("reset", shop.source.location, "copy", "--to", "earliest", "--yes")
        assert refused.exit_code == 1
        assert "LeaseHeld" in refused.output
    told = run(shop.source.location).output
    assert "versions behind" in told
    assert "nobody" in told
    assert run("reset", shop.source.location, "copy", "--to", "1", "--yes").output.strip() == "reset: copy goes on after version 1"
    assert run("reset", shop.source.location, "copy", "--to", "soon", "--yes").exit_code == 2
    assert run("remove", shop.source.location, "other", "--yes").exit_code == 2
    assert run("remove", shop.source.location, "copy", "--yes").output.strip() == "removed: copy"
    assert run("list", shop.source.location, "--json").output.strip() == "[]"


# -- vacuum --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept() -> Iterator[Shop]:
    """On disks in memory, whose clock can be moved on."""
    name = uuid.uuid4().hex
    yield Shop(lambda each: f"memory://{name}-{each}", f"memory://{name}")
    for each in "soa":
        MemoryStore.open(f"{name}-{each}").forget()


@pytest.mark.notices("what-is-followed-is-kept", "consumers-pin-their-position")
def test_a_vacuum_spares_what_a_living_consumer_has_to_read(kept: Shop) -> None:
    place = Place(kept.source.location, kept.coordinator)
    with kept.consumer() as consumer:
        assert consumed(consumer, 1) == [1]
        kept.source.overwrite(rows(6))
        kept.source.overwrite(rows(7))
        later(place, 30 * DAY_MS)
        kept.source.vacuum(0, force=True)
        assert consumed(consumer) == [2, 3, 4, 5, 6, 7]
    assert in_it(kept.out) == [1, 2, 3, 4, 5, 6, 7]
    assert disk_of(place).calls


def test_a_vacuum_does_not_wait_for_a_consumer_that_nobody_runs(kept: Shop) -> None:
    place = Place(kept.source.location, kept.coordinator)
    with kept.consumer() as consumer:
        assert consumed(consumer, 1) == [1]
    kept.source.overwrite(rows(6))
    later(place, 30 * DAY_MS)
    kept.source.vacuum(0, force=True)
    with kept.consumer() as consumer, pytest.raises(sluice.errors.HistoryGone, match="reset_consumer"):
        consumed(consumer)
    assert kept.source.reset_consumer("copy", None) == kept.source.refresh().version
    with kept.consumer() as consumer:
        assert consumed(consumer) == []


def test_a_consumer_whose_transaction_lost_has_priority_in_the_next_one(shop: Shop) -> None:
    shop.out.append(rows(100))

    def by_another(where: str) -> None:
        other = sluice.Table.open(shop.out.location, coordinator=shop.coordinator, timeout_s=0.5)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other.update, {"n": "n + 10"}, where).result(30)

    with shop.consumer() as consumer:
        next(consumer)
        lost = consumer.transaction()
        lost[shop.out].update({"n": "n + 1"}, "n = 100")
        by_another("n = 100")
        with pytest.raises(sluice.errors.ConcurrentModification):
            lost.commit()
        again = consumer.transaction()
        assert again.losses == 1
        again[shop.out].update({"n": "n + 1"}, "n = 110")
        with pytest.raises(sluice.errors.LeaseHeld, match="after 1 loss'"):
            by_another("n = 110")
        again.commit()
        assert again.losses == 0
        next(consumer)
        consumer.transaction().abort()
        by_another("n = 111")
