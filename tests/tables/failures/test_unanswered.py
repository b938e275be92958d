"""Commits without an answer: their outcome, committing again, and taking back. Each happens once or never."""

from __future__ import annotations

import ast
import random
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.commit import transactions
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, Fault, MemoryCoordination
from sluice.coordinator.service.store import Write

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([pa.field("sku", pa.int64()), pa.field("n", pa.int64())])
IMPATIENT = Limits(patience_s=0.02, patience_s_max=0.2, fast_path=False)
NAMES = ("orders", "stock")

Open: TypeAlias = "sluice.Transaction | sluice.JointTransaction"


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"sku": [a for a, _ in pairs], "n": [b for _, b in pairs]}, schema=SCHEMA)


class Shop:
    """Two tables; every client of them has caches of its own."""

    def __init__(self, folder: Path, coordinator: str) -> None:
        self.folder, self.coordinator = folder, coordinator
        for name in NAMES:
            sluice.Table.create(folder / name, SCHEMA, coordinator=coordinator)

    @property
    def service(self) -> MemoryCoordination:
        return MemoryCoordination.named(self.coordinator.removeprefix("memory://"))

    def tables(self) -> list[sluice.Table]:
        return [sluice.Table.open(self.folder / name, coordinator=self.coordinator, limits=IMPATIENT) for name in NAMES]

    def content(self) -> list[list[tuple[int, int]]]:
        snapshots = sluice.read_together(self.tables())
        data = [each.to_arrow() for each in snapshots]
        return [sorted(zip(d["sku"].to_pylist(), d["n"].to_pylist(), strict=True)) for d in data]

    def outcome(self, begun: Open) -> sluice.Outcome:
        return sluice.outcome(begun.id, self.coordinator)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, f"memory://{uuid.uuid4().hex}")


def one(shop: Shop, **options: Any) -> sluice.Transaction:
    """An append to the first table."""
    begun = shop.tables()[0].begin(**options)
    begun.append(rows((1, 1)))
    return begun


def several(shop: Shop, **options: Any) -> sluice.JointTransaction:
    """The same in both tables."""
    tables = shop.tables()
    begun = sluice.transaction(tables=tables, **options)
    for table in tables:
        begun[table].append(rows((1, 1)))
    return begun


BOTH = pytest.mark.parametrize("begin", [one, several])
Begin: TypeAlias = "Callable[..., Open]"


@contextmanager
def giving_up() -> Iterator[None]:
    """A client that files in this block gets no answer: its time is over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactions.CommitLoop, "run", lambda loop, _=(): loop._give_up())
        yield


def filed(begun: Open) -> None:
    """Commit it without hearing anything."""
    with giving_up(), pytest.raises(sluice.errors.OutcomeUnknown) as unknown:
        begun.commit()
    assert unknown.value.stage == "intent"
    assert unknown.value.transaction_id == begun.id
    assert begun.state == "undecided"


# -- the answers -------------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.slow
def test_every_unknown_outcome_tells_its_stage() -> None:
    raised = [
        {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg == "stage"}
        for path in Path(sluice.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "OutcomeUnknown"
    ]
    assert {each.get("stage") for each in raised} == {"staged", "intent"}


@BOTH
@pytest.mark.parametrize("lost", [False, True])
def test_nothing_is_filed_when_the_time_was_over_before_or_all_requests_were_lost(shop: Shop, begin: Begin, lost: bool) -> None:
    """The coordinator answers questions, so that it is known that nothing took effect."""
    begun = begin(shop)
    if lost:
        shop.service.before = lambda call: Fault.REQUEST_LOST if call.verb == "apply" else None
    with pytest.raises(sluice.errors.OutcomeUnknown) as unknown:
        begun.commit(timeout_s=0.3 if lost else 1e-9)
    shop.service.before = None
    assert (unknown.value.stage, unknown.value.transaction_id) == ("staged", begun.id)
    assert unknown.value.retryable
    assert begun.state == "undecided"
    with pytest.raises(sluice.errors.InvalidRequest, match="is undecided; begin another one"):
        begun.__enter__()
    assert shop.outcome(begun).state == "unknown"
    assert shop.content() == [[], []]
    assert begun.commit() is not None
    assert begun.state == "committed"
    assert shop.content()[0] == [(1, 1)]


class Ahead(SystemClock):
    """A clock that a test puts forward, so that a call's time is over when it says so."""

    by_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.by_s


@BOTH
def test_a_commit_that_was_filed_and_decided_unseen_is_no_staged_one(shop: Shop, begin: Begin) -> None:
    """The reply is lost, and until it is asked the transaction is decided, published and cleaned up; all else is lost then."""
    begun, clock = begin(shop), Ahead()
    other, filing = shop.tables()[0], iter([True])

    def lose(call: Call) -> Fault | None:
        return Fault.REPLY_LOST if call.verb == "apply" and next(filing, False) else None

    asked, seen = TableContext.after_lost_reply, set[str]()

    def after_lost_reply(context: TableContext, transaction_id: str, look: Callable[[], Any]) -> Any:
        if transaction_id not in seen:
            seen.add(transaction_id)
            other.append(rows((2, 2)))
            shop.service.before = lambda call: Fault.REQUEST_LOST if call.verb == "apply" else None
            clock.by_s = 60.0
        return asked(context, transaction_id, look)

    shop.service.before = lose
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableContext, "after_lost_reply", after_lost_reply)
        with pytest.raises(sluice.errors.OutcomeUnknown) as unknown:
            begun.commit(timeout_s=Deadline.after(60.0, clock))
    shop.service.before = None
    assert unknown.value.stage == "intent"
    assert begun.commit() is not None
    assert shop.content()[0] == [(1, 1), (2, 2)]


@BOTH
@pytest.mark.parametrize("call", ["commit", "withdraw"])
def test_who_filed_it_and_finds_everybody_away_is_not_told_that_nothing_was_written(shop: Shop, begin: Begin, call: str) -> None:
    begun = begin(shop)
    filed(begun)
    shop.service.before = lambda _: Fault.EXPIRED_BEFORE
    with pytest.raises(sluice.errors.OutcomeUnknown, match="cannot be asked now") as unknown:
        getattr(begun, call)(timeout_s=0.3)
    shop.service.before = None
    assert (unknown.value.stage, unknown.value.transaction_id) == ("intent", begun.id)
    assert not unknown.value.retryable
    assert begun.commit() is begun.commit() is not None
    assert begun.state == "committed"
    assert shop.content()[0] == [(1, 1)]


# -- taking back --------------------------------------------------------------------------------------------------------


@BOTH
def test_what_is_open_is_given_up(shop: Shop, begin: Begin) -> None:
    with begin(shop) as begun:
        assert begun.withdraw() is None
    assert begun.state == "withdrawn"
    begun.abort()
    assert begun.state == "withdrawn"
    with pytest.raises(sluice.errors.Withdrawn):
        begun.commit()
    assert begun.withdraw() is None
    assert shop.outcome(begun).state == "unknown"
    assert shop.content() == [[], []]


@pytest.mark.notices("taken-back-by-a-verdict")
@BOTH
def test_what_is_filed_and_undecided_is_taken_back_for_ever(shop: Shop, begin: Begin) -> None:
    begun = begin(shop)
    filed(begun)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"withdraw\(\)"):
        begun.abort()
    assert begun.withdraw() is None
    assert begun.state == "withdrawn"
    outcome = shop.outcome(begun)
    assert outcome.state == "refused"
    assert isinstance(outcome.error, sluice.errors.Withdrawn)
    assert begun.id in outcome.error.message
    for _ in range(2):
        with pytest.raises(sluice.errors.Withdrawn):
            begun.commit()
    assert [table.append(rows((2, 2))).version for table in shop.tables()] == [1, 1]  # type: ignore[union-attr]
    assert shop.content() == [[(2, 2)], [(2, 2)]]
    assert all(isinstance(table.outcome(begun.id).error, sluice.errors.Withdrawn) for table in shop.tables()[: len(begun_tables(begun))])


def begun_tables(begun: Open) -> tuple[str, ...]:
    return NAMES if isinstance(begun, sluice.JointTransaction) else NAMES[:1]


@pytest.mark.notices("too-late-to-take-back")
@BOTH
def test_it_may_have_been_too_late(shop: Shop, begin: Begin) -> None:
    begun = begin(shop)
    filed(begun)
    assert shop.outcome(begun).state == "committed"  # somebody asked, so it was decided
    told: Any = begun.withdraw()
    assert told is not None
    assert told == begun.commit()
    assert begun.state == "committed"
    assert begun.withdraw() == told
    assert shop.content()[0] == [(1, 1)]
    if isinstance(begun, sluice.JointTransaction):
        assert {commit.version for commit in begun.commit_info.values()} == {1}


@BOTH
def test_what_others_refused_stays_refused_for_that(shop: Shop, begin: Begin) -> None:
    begun = begin(shop)
    shop.tables()[0].set_properties({"delta.targetFileSize": "1mb"})
    with pytest.raises(sluice.errors.MetadataChangedException):
        begun.commit()
    assert begun.withdraw() is None
    begun.abort()
    assert begun.state == "refused"
    with pytest.raises(sluice.errors.MetadataChangedException):
        begun.commit()


@pytest.mark.notices("taken-back-alone")
@BOTH
def test_what_stands_before_it_is_decided_as_ever(shop: Shop, begin: Begin) -> None:
    """Nobody is alive but the one who withdraws: what dead ones filed is decided with it, and what comes later goes on."""
    dead: list[Open] = [one(shop), several(shop), one(shop)]
    for each in dead:
        filed(each)
    begun = begin(shop)
    filed(begun)
    later = one(shop)
    filed(later)
    assert begun.withdraw() is None
    assert isinstance(shop.outcome(begun).error, sluice.errors.Withdrawn)
    assert {shop.outcome(each).state for each in (*dead, later)} == {"committed"}
    assert shop.content() == [[(1, 1)] * 4, [(1, 1)]]


@BOTH
@pytest.mark.parametrize("took_effect", [True, False])
def test_what_may_have_been_filed_is_taken_back(shop: Shop, begin: Begin, took_effect: bool) -> None:
    """The coordinator goes away while it is filed, so that not even that is known."""
    begun = begin(shop)
    lost = iter([Fault.REPLY_LOST if took_effect else Fault.REQUEST_LOST])

    def away(call: Call) -> Fault | None:
        return next(lost, Fault.REQUEST_LOST) if call.verb == "apply" else None

    shop.service.before = away
    with pytest.raises((sluice.errors.OutcomeUnknown, sluice.errors.CoordinatorUnavailable)) as unknown:
        begun.commit(timeout_s=0.3)
    shop.service.before = None
    assert unknown.value.stage == ("intent" if took_effect else "staged")
    assert begun.withdraw() is None
    assert shop.outcome(begun).state == ("refused" if took_effect else "unknown")
    with pytest.raises(sluice.errors.Withdrawn):
        begun.commit()
    assert shop.content() == [[], []]


@pytest.mark.slow
@pytest.mark.shows("no-answer")
@BOTH
@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.EXPIRED_BEFORE, Fault.EXPIRED_AFTER])
@pytest.mark.many
def test_every_message_of_it_is_lost_in_turn(shop: Shop, begin: Begin, fault: Fault) -> None:
    for lost in range(1, 60):
        begun = begin(shop)
        filed(begun)
        calls = iter(range(1, 100_000))

        def lose(_: Call, calls: Iterator[int] = calls, lost: int = lost) -> Fault | None:
            return fault if next(calls) == lost else None

        shop.service.before = lose
        told: object = None
        for _ in range(4):
            try:
                told = begun.withdraw(timeout_s=5)
            except (sluice.errors.OutcomeUnknown, sluice.errors.Unavailable):
                continue
            break
        shop.service.before = None
        assert told is None
        assert begun.state == "withdrawn"
        assert isinstance(shop.outcome(begun).error, sluice.errors.Withdrawn)
        assert shop.content() == [[], []]
        if next(calls) <= lost:
            return
    raise AssertionError("it took more messages than were lost")


@pytest.mark.slow
@pytest.mark.shows("no-answer")
@BOTH
@pytest.mark.long
def test_it_races_with_whoever_decides(shop: Shop, begin: Begin) -> None:
    """Either it is withdrawn, or it is committed, and everybody says the same."""
    coin, told = random.Random(5), set[str]()
    expected: list[list[tuple[int, int]]] = [[], []]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(40):
            begun = begin(shop)
            filed(begun)
            helper, writer = shop.tables()[coin.randrange(len(begun_tables(begun)))], shop.tables()[0]
            if coin.random() < 0.5:
                withdrawing, asking = pool.submit(begun.withdraw), pool.submit(helper.outcome, begun.id)
            else:
                asking, withdrawing = pool.submit(helper.outcome, begun.id), pool.submit(begun.withdraw)
            pool.submit(writer.append, rows((2, 2))).result()
            mine, seen = withdrawing.result(), asking.result()
            state = "refused" if mine is None else "committed"
            assert seen.state == state
            assert shop.outcome(begun).state == state
            told.add(state)
            expected[0].append((2, 2))
            for n in range(len(begun_tables(begun)) if mine is not None else 0):
                expected[n].append((1, 1))
    assert shop.content() == [sorted(each) for each in expected]
    assert told == {"refused", "committed"}


@pytest.mark.costly
@pytest.mark.slow
def test_the_one_who_withdraws_dies_at_every_call(shop: Shop) -> None:
    """Its transaction is withdrawn then, or others decide it; never both."""

    class KilledError(BaseException):
        pass

    committed = 0
    for fatal in range(1, 60):
        begun = several(shop)
        filed(begun)
        calls = iter(range(1, 100_000))

        def die(_: Call, calls: Iterator[int] = calls, fatal: int = fatal) -> None:
            if next(calls) == fatal:
                raise KilledError

        shop.service.before = die
        try:
            begun.withdraw(timeout_s=5)
        except KilledError:
            survived = False
        else:
            survived = True
        shop.service.before = None
        states = {table.outcome(begun.id).state for table in shop.tables()}
        assert len(states) == 1
        assert states <= {"committed", "refused"}
        committed += states == {"committed"}
        assert shop.content() == [[(1, 1)] * committed] * 2
        if survived:
            assert committed > 0
            return
    raise AssertionError("it took more calls than it was killed at")


def test_a_head_that_moved_meanwhile_is_looked_at_again(shop: Shop) -> None:
    """The multi that withdraws it is computed on a head that another client moves just before it is sent."""
    begun = one(shop)
    filed(begun)
    interfering = iter([True])

    def interfere(call: Call) -> None:
        if any(isinstance(op, Write) and op.path.endswith("/head") for op in call.ops) and next(interfering, False):
            shop.service.before = None
            shop.tables()[0].append(rows((2, 2)))

    shop.service.before = interfere
    told = begun.withdraw()
    shop.service.before = None
    assert told is not None, "who came between decided both"
    assert shop.content()[0] == [(1, 1), (2, 2)]


@pytest.mark.zookeeper
@BOTH
def test_on_a_real_zookeeper(tmp_path: Path, zookeeper_address: str, begin: Begin) -> None:
    shop = Shop(tmp_path, zookeeper_address)
    begun = begin(shop)
    filed(begun)
    assert begun.withdraw() is None
    assert isinstance(shop.outcome(begun).error, sluice.errors.Withdrawn)
    late = begin(shop)
    filed(late)
    shop.outcome(late)
    assert late.withdraw() is not None
    assert shop.content()[0] == [(1, 1)]
