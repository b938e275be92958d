"""`sluice.transaction`, `sluice.read_together` and `sluice.outcome`: several tables as users see them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.service.memory import Call, Fault, MemoryCoordination
from sluice.storage.stores.location import open_store
from sluice.tables.write.draft import Draft, Finished
from tests.judge.incomplete_joints import incomplete_joints

SCHEMA = pa.schema([pa.field("sku", pa.int64()), pa.field("n", pa.int64())])
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5)
QUEUED = replace(IMPATIENT, fast_path=False)

Shop = dict[str, sluice.Table]


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"sku": [a for a, _ in pairs], "n": [b for _, b in pairs]}, schema=SCHEMA)


def content(table: sluice.Table | sluice.TableSnapshot) -> list[tuple[int, int]]:
    snapshot = table.snapshot() if isinstance(table, sluice.Table) else table
    data = snapshot.to_arrow()
    return sorted(zip(data["sku"].to_pylist(), data["n"].to_pylist(), strict=True))


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def shop(tmp_path: Path, coordinator: str) -> Shop:
    """Three tables, with ten of everything in stock."""
    made: Shop = {}
    for name in ("orders", "stock", "totals"):
        sluice.Table.create(tmp_path / name, SCHEMA, coordinator=coordinator, properties={"delta.enableDeletionVectors": "true"})
        made[name] = sluice.Table.open(tmp_path / name, coordinator=coordinator, limits=IMPATIENT)
    made["stock"].append(rows(*((sku, 10) for sku in range(5))))
    return made


def opened(shop: Shop, coordinator: str, limits: Limits = IMPATIENT) -> Shop:
    return {name: sluice.Table.open(table.location, coordinator=coordinator, limits=limits) for name, table in shop.items()}


@pytest.fixture
def service(coordinator: str) -> MemoryCoordination:
    return MemoryCoordination.named(coordinator.removeprefix("memory://"))


def forget_verdicts(service: MemoryCoordination, of: str = "") -> None:
    """As if much had been committed since: the coordinator's records of verdicts on a table (all of them) are gone."""
    session = service.connect()
    for path in [node.path for node in service.tree.walk() if f"{of}/verdicts/" in unquote(node.path)]:
        session.delete(path)


def test_a_transaction_over_three_tables(shop: Shop) -> None:
    orders, stock, totals = shop.values()
    with sluice.transaction() as tx:
        tx[orders].append(rows((3, 1), (4, 1)))
        tx[orders].upsert(rows((3, 2)), on="sku")
        tx[orders].delete("sku = 4")
        assert tx[orders].scan()["n"].to_pylist() == [2], "each operation sees what the ones before it did"
        tx[stock].update({"n": "n - 2"}, "sku = 3")
        tx[totals].overwrite(rows((0, 1)))
        assert content(orders) == []  # nobody sees anything yet
    assert tx.state == "committed"
    assert {table: tx.commit_info[table].version for table in (orders, stock)} == {orders: 1, stock: 2}
    assert tx.commit_info[totals.location].transaction_id == tx.id
    assert len(tx.commit_info) == 3
    assert content(orders) == [(3, 2)]
    assert content(stock) == [(0, 10), (1, 10), (2, 10), (3, 8), (4, 10)]
    assert content(totals) == [(0, 1)]
    assert deltalake.DeltaTable(orders.location).version() == 1
    assert tx.commit() is tx.commit_info
    assert all(table.history(1)[0].joint == {orders.location: 1, stock.location: 2, totals.location: 1} for table in shop.values())


def test_tables_are_given_by_location_too(shop: Shop, coordinator: str) -> None:
    orders, stock, _ = shop.values()
    with sluice.transaction(coordinator) as tx:
        tx[orders.location.removeprefix("file://")].append(rows((1, 1)))
        tx[Path(stock.location.removeprefix("file://"))].delete("sku = 1")
    assert set(tx.commit_info) == {orders.location, stock.location}
    assert [content(each) for each in sluice.read_together([orders.location, stock], coordinator=coordinator)] == [
        [(1, 1)],
        [(0, 10), (2, 10), (3, 10), (4, 10)],
    ]


def test_a_conflict_names_its_table_and_nothing_of_it_is_visible(shop: Shop, coordinator: str) -> None:
    orders, stock, totals = shop.values()
    tx = sluice.transaction()
    tx[stock].update({"n": "n - 1"}, "sku = 3")
    tx[orders].append(rows((3, 1)))
    tx[totals].append(rows((0, 1)))
    opened(shop, coordinator)["stock"].update({"n": "n - 5"}, "sku = 3")
    with pytest.raises(sluice.errors.ConcurrentModification, match="/stock: ") as caught:
        tx.commit()
    assert caught.value.facts["table"] == stock.location
    assert tx.state == "refused"
    with pytest.raises(sluice.errors.ConcurrentModification):
        tx.commit()
    assert content(orders) == content(totals) == []
    assert (3, 5) in content(stock)


def test_a_table_that_was_only_read_is_compared_and_gets_no_version(shop: Shop, coordinator: str) -> None:
    orders, stock, _ = shop.values()

    def order(between: Callable[[], object]) -> sluice.JointTransaction:
        with sluice.transaction(isolation="Serializable") as tx:
            if tx[stock].scan(where="sku = 3")["n"].to_pylist()[0] >= 5:
                tx[orders].append(rows((3, 5)))
            between()
        return tx

    done = order(lambda: None)
    assert set(done.commit_info) == {orders.location}
    assert stock.refresh().version == 1
    other = opened(shop, coordinator)["stock"]
    with pytest.raises(sluice.errors.ConcurrentModification, match="/stock: "):
        order(lambda: other.update({"n": "0"}, "sku = 3"))
    assert content(orders) == [(3, 5)]


@pytest.mark.notices("appends-after-reading-elsewhere-are-not-blind")
def test_two_that_each_read_where_the_other_appends_are_not_both_committed(shop: Shop, coordinator: str) -> None:
    """No write skew across tables under WriteSerializable: alone, the second one would have seen the first one's row."""
    other = opened(shop, coordinator)
    one, two = sluice.transaction(), sluice.transaction(coordinator)
    assert one[shop["orders"]].scan().num_rows == two[other["totals"]].scan().num_rows == 0
    one[shop["totals"]].append(rows((1, 0)))
    two[other["orders"]].append(rows((2, 0)))
    one.commit()
    with pytest.raises(sluice.errors.ConcurrentAppendException) as refused:
        two.commit()
    assert refused.value.facts["table"] == shop["totals"].location
    assert (content(shop["totals"]), content(shop["orders"])) == ([(1, 0)], [])
    assert shop["totals"].history(1)[0].is_blind_append is False


def test_appends_to_one_table_stand_beside_each_other_whatever_was_read_elsewhere(shop: Shop, coordinator: str) -> None:
    other = opened(shop, coordinator)
    one, two = sluice.transaction(), sluice.transaction(coordinator)
    assert one[shop["stock"]].scan(where="sku = 1").num_rows == two[other["stock"]].scan(where="sku = 1").num_rows == 1
    two[other["stock"]].delete("sku = 4")
    for number, tx in enumerate((one, two)):
        tx[(shop, other)[number]["orders"]].append(rows((number, 1)))
        tx.commit()
    with sluice.transaction() as blind:
        for table in shop.values():
            blind[table].append(rows((9, 9)))
    assert content(shop["orders"]) == [(0, 1), (1, 1), (9, 9)]
    assert [table.history(1)[0].is_blind_append for table in shop.values()] == [True, True, True]


def test_one_table_only_and_none_at_all(shop: Shop) -> None:
    with sluice.transaction() as tx:
        tx[shop["orders"]].append(rows((1, 1)))
    assert tx.commit_info[shop["orders"]].version == 1
    with sluice.transaction() as nothing:
        nothing[shop["orders"]].delete("sku = 77")
        nothing[shop["stock"]].scan()
    assert nothing.state == "committed"
    assert len(nothing.commit_info) == 0
    assert sluice.transaction().commit() == {}


def test_operations_after_an_error_count_and_no_file_stays_of_a_refused_one(
    shop: Shop, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, stock, _ = shop.values()
    orders.append(rows((1, 1), (2, 1)))
    orders.set_properties({"delta.enableChangeDataFeed": "true"})

    def away(self: Draft, now_ms: int) -> Finished:
        if self.store.location == stock.location:
            raise sluice.errors.Unavailable("the store is away")
        return finish(self, now_ms)

    finish = Draft.finish
    for sku in (1, 2):
        tx = sluice.transaction()
        tx[orders].delete(f"sku = {sku}")
        tx[stock].delete(f"sku = {sku}")
        with monkeypatch.context() as patch:
            patch.setattr(Draft, "finish", away)  # after the orders are staged
            with pytest.raises(sluice.errors.Unavailable):
                tx.commit()
        tx[orders].append(rows((sku, 7)))
        if sku == 1:
            tx.commit()
            assert content(orders) == [(1, 7), (2, 1)]
    opened(shop, coordinator)["stock"].delete("sku = 2")
    with pytest.raises(sluice.errors.ConcurrentModification, match="/stock: "):
        tx.commit()
    assert not [each for each in open_store(orders.location, {}).list_from("", recursive=True) if tx.id in each.key]


def test_tables_of_different_coordinators_are_refused_before_anything_is_written(shop: Shop, tmp_path: Path) -> None:
    other = sluice.Table.create(tmp_path / "elsewhere", SCHEMA, coordinator=f"memory://{uuid.uuid4().hex}")
    with pytest.raises(sluice.errors.InvalidRequest, match="different coordinators"):
        sluice.read_together([shop["orders"], other])
    tx = sluice.transaction()
    tx[shop["orders"]].append(rows((1, 1)))
    with pytest.raises(sluice.errors.InvalidRequest, match="different coordinators"):
        tx[other].append(rows((1, 1)))
    assert not list((tmp_path / "elsewhere").glob("**/*.parquet"))


def test_what_is_no_list_of_tables(shop: Shop) -> None:
    choices: list[Any] = [[], shop["orders"], shop["orders"].location]
    for tables in choices:
        with pytest.raises(sluice.errors.InvalidRequest, match="at least one table"):
            sluice.read_together(tables)
    with pytest.raises(sluice.errors.InvalidRequest, match="ack"):
        sluice.transaction(ack="soon")
    with pytest.raises(sluice.errors.InvalidRequest, match="isolation"):
        sluice.transaction(tables=[shop["orders"]], isolation="Chaos")


def test_the_tables_of_one_transaction_are_read_as_of_one_moment(shop: Shop, coordinator: str) -> None:
    """A table that joins late is read as of the moment when the first ones were read, although it and one of them changed since."""
    orders, stock, totals = shop.values()
    others = opened(shop, coordinator)
    with sluice.transaction() as tx:
        assert tx[orders].scan().num_rows == tx[totals].scan().num_rows == 0
        for _ in range(3):
            with sluice.transaction() as moving:
                moving[others["orders"]].append(rows((1, 1)))
                moving[others["stock"]].update({"n": "n - 1"}, "sku = 1")
        assert tx[stock].scan(where="sku = 1")["n"].to_pylist() == [10]
        assert dict(tx.read_versions) == {orders.location: 0, totals.location: 0, stock.location: 1}
        tx.abort()
    with sluice.transaction(tables=[orders, stock]) as fresh:
        assert fresh[stock].scan(where="sku = 1")["n"].to_pylist() == [7]


def test_a_moment_that_is_forgotten_is_said_so(shop: Shop, coordinator: str, service: MemoryCoordination) -> None:
    tx = sluice.transaction()
    tx[shop["orders"]].scan()
    opened(shop, coordinator)["orders"].append(rows((1, 1)))
    forget_verdicts(service)
    with pytest.raises(sluice.errors.ConcurrentModification, match="tables="):
        tx[shop["stock"]].scan()


@pytest.mark.costly
@pytest.mark.slow
def test_transfers_between_tables_keep_the_sum_and_are_never_seen_half(shop: Shop, coordinator: str) -> None:
    """Six threads move amounts between three tables; a reader adds up all of them, again and again."""
    accounts = opened(shop, coordinator, QUEUED)
    for table in accounts.values():
        table.overwrite(rows(*((sku, 100) for sku in range(4))))
    sums: set[int] = set()

    def move(seed: int) -> int:
        dice, mine, done = random.Random(seed), opened(shop, coordinator, QUEUED if seed % 2 else IMPATIENT), 0
        for _ in range(6):
            source, target = dice.sample(sorted(mine), 2)
            amount, sku = dice.randint(1, 9), dice.randrange(4)
            try:
                with sluice.transaction() as tx:
                    tx[mine[source]].update({"n": f"n - {amount}"}, f"sku = {sku}")
                    tx[mine[target]].update({"n": f"n + {amount}"}, f"sku = {sku}")
                done += 1
            except sluice.errors.ConcurrentModification:
                continue
        return done

    with ThreadPoolExecutor(7) as pool:
        moves = [pool.submit(move, seed) for seed in range(6)]
        while not all(each.done() for each in moves):
            together = sluice.read_together(list(accounts.values()))
            sums.add(sum(n for table in together for _, n in content(table)))
        assert sum(each.result() for each in moves) > 6
    assert sums == {1200}
    assert sum(n for table in accounts.values() for _, n in content(table)) == 1200


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.EXPIRED_AFTER])
def test_every_message_of_a_commit_is_lost_in_turn(shop: Shop, service: MemoryCoordination, fault: Fault) -> None:
    orders, stock, _ = shop.values()
    for number in range(80):
        tx = sluice.transaction(tables=[orders, stock])
        tx[orders].append(rows((number, 1)))
        tx[stock].update({"n": "n - 1"}, "sku = 1")
        seen = iter(range(1000))

        def lose(call: Call, seen: Iterator[int] = seen, number: int = number) -> Fault | None:
            return fault if next(seen) == number else None

        service.before = lose
        tx.commit()
        service.before = None
        assert len(content(orders)) == number + 1
        assert dict(content(stock))[1] == 10 - number - 1
        if next(seen) <= number:
            return
    raise AssertionError("a commit takes more than 80 calls")


def test_the_outcome_can_be_asked_anywhere(shop: Shop, coordinator: str) -> None:
    orders, stock, totals = shop.values()
    with sluice.transaction() as tx:
        tx[orders].append(rows((1, 1)))
        tx[totals].append(rows((1, 1)))
        tx[stock].scan()
    outcome = sluice.outcome(tx.id, coordinator)
    assert outcome.state == "committed"
    assert {location: commit.version for location, commit in outcome.commits.items()} == {orders.location: 1, totals.location: 1}
    assert sluice.outcome(str(uuid.uuid4()), coordinator).state == "unknown"
    doomed = sluice.transaction()
    doomed[stock].delete("sku = 1")
    doomed[orders].append(rows((7, 7)))
    opened(shop, coordinator)["stock"].delete("sku = 1")
    with pytest.raises(sluice.errors.ConcurrentModification):
        doomed.commit()
    refused = sluice.outcome(doomed.id, coordinator)
    assert refused.state in ("refused", "unknown")  # met before it was filed, or after
    with pytest.raises(sluice.errors.InvalidRequest, match="transaction_id"):
        sluice.outcome("", coordinator)


def test_the_outcome_is_told_by_the_logs_when_the_records_are_gone(shop: Shop, coordinator: str, service: MemoryCoordination) -> None:
    with sluice.transaction() as tx:
        tx[shop["orders"]].append(rows((1, 1)))
        tx[shop["totals"]].append(rows((1, 1)))
    forget_verdicts(service)
    assert len(sluice.outcome(tx.id, coordinator).commits) == 2


def test_the_outcome_names_what_was_written_though_only_what_was_read_has_a_record(
    shop: Shop, coordinator: str, service: MemoryCoordination
) -> None:
    """Much was committed since to the table that it wrote, and nothing to the one that it read."""
    orders, stock, _ = shop.values()
    with sluice.transaction() as tx:
        tx[orders].append(rows((1, 1)))
        tx[stock].scan()
    forget_verdicts(service, of="orders")
    assert stock.outcome(tx.id).state == "committed"
    outcome = sluice.outcome(tx.id, coordinator)
    assert {location: commit.version for location, commit in outcome.commits.items()} == {orders.location: 1}
    assert outcome.commit == outcome.commits[orders.location]


@pytest.mark.slow
def test_sets_that_a_loss_left_incomplete_are_found(shop: Shop) -> None:
    orders, stock, _ = shop.values()
    with sluice.transaction() as tx:
        tx[orders].append(rows((1, 1)))
        tx[stock].delete("sku = 1")
    stores = {table.location: open_store(table.location) for table in shop.values()}
    assert incomplete_joints(stores) == []
    stores[stock.location].delete("_delta_log/00000000000000000002.json")
    [incomplete] = incomplete_joints(stores)
    assert incomplete.transaction_id == tx.id
    assert dict(incomplete.present) == {orders.location: 1}
    assert dict(incomplete.missing) == {stock.location: 2}
    assert incomplete_joints({orders.location: stores[orders.location]}) == []


@pytest.mark.slow
def test_many_tables_and_much_in_each(tmp_path: Path, coordinator: str) -> None:
    """Twelve tables with actions too large for their intents share the room of one request."""
    many = [sluice.Table.create(tmp_path / f"t{n}", SCHEMA, partition_by=["sku"], coordinator=coordinator) for n in range(12)]
    with sluice.transaction(coordinator) as tx:
        for table in many:
            tx[table].append(rows(*((sku, 1) for sku in range(60))))
    assert [each.to_arrow().num_rows for each in sluice.read_together(many)] == [60] * 12


def test_rows_that_are_neither_arrow_nor_spark(shop: Shop) -> None:
    tx = sluice.transaction()
    with pytest.raises((sluice.errors.InvalidRequest, TypeError)):
        tx[shop["orders"]].append(object())
    assert tx.state == "open"
    tx.abort()
    for use in (tx.commit, lambda: tx[shop["orders"]].append(rows((1, 1)))):
        with pytest.raises(sluice.errors.InvalidRequest, match="aborted"):
            use()


def test_a_coordinator_that_is_not_the_tables_is_refused(shop: Shop, coordinator: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=r"is kept by .*coordinator='memory://other'"):
        sluice.transaction("memory://other", tables=[shop["orders"]])
    with pytest.raises(sluice.errors.InvalidRequest, match="memory://other"):
        sluice.transaction("memory://other")[shop["orders"]].append(rows((1, 1)))
    sluice.transaction(coordinator, tables=[shop["orders"]]).abort()


def test_a_part_does_not_end_alone(shop: Shop) -> None:
    orders = shop["orders"]
    with sluice.transaction() as tx:
        part = tx[orders]
        part.append(rows((1, 1)))
        for end in (part.commit, part.withdraw, part.abort):
            with pytest.raises(sluice.errors.InvalidRequest, match=f"part of transaction {tx.id} in {orders.location}: end the whole"):
                end()
        assert tx.part(orders) is part
    assert content(orders) == [(1, 1)]
    assert tx.state == "committed"
