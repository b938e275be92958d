"""A transaction's outcome is found in bounded time, however long the log is and however often sessions end."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import pytest

from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.nodes.presence import Presence, another_id, made_ms, new_client, new_id, new_plan_id, owner_of
from sluice.coordinator.publication.ratified_log import RatifiedLog
from sluice.coordinator.rules.winner import Winner
from sluice.coordinator.service.clock import SystemClock, bounding
from sluice.coordinator.service.memory import Call
from sluice.storage.errors import Unavailable
from tests.coordinator.world import DAY_MS, QUICK, Calendar, Client, World, append_intent, soon

FEW = replace(QUICK, backlog_versions_max=2, verdicts_kept=3)


def with_history(world: World, *, old: int, new: int) -> Calendar:
    """Versions of ten days ago, and of today."""
    client = world.client(FEW)
    calendar = client.with_calendar(-10)
    for _ in range(old):
        client.commit(append_intent(client.head(), claimed_ms=calendar.now_ms()))
    calendar.days = 0
    for _ in range(new):
        client.append()
    return calendar


def read_versions(world: World) -> int:
    return sum(verb == "get" and key.startswith("_delta_log/") for verb, key in world.objects.disk.calls)


@pytest.mark.notices("ids-are-looked-for-before-they-were-made")
@pytest.mark.parametrize("plan", [False, True], ids=["client", "plan"])
def test_an_unknown_transaction_is_looked_for_where_it_can_be(world: World, plan: bool) -> None:
    """The log before its id was made is not read."""
    calendar = with_history(world, old=30, new=5)
    unknown = new_plan_id(calendar.now_ms()) if plan else new_id(new_client(), 0, 7, calendar.now_ms())
    before = read_versions(world)
    assert world.client().outcome(unknown).state == "unknown"
    assert read_versions(world) - before <= 5 + 1
    long_ago = new_id(new_client(), 0, 7, calendar.now_ms() - 20 * DAY_MS)
    assert world.client().outcome(long_ago).state == "unknown"
    assert read_versions(world) - before > 30


@pytest.mark.notices("clocks-may-differ")
@pytest.mark.parametrize("ahead_hours", [0, 20])
def test_a_transaction_is_found_though_the_clock_that_made_its_id_was_ahead(world: World, ahead_hours: int) -> None:
    now = SystemClock().now_ms()
    mine = new_plan_id(now + ahead_hours * 3600 * 1000)
    client = world.client(FEW)
    client.session.ensure_path(owner_of(mine).path)  # type: ignore[union-attr]
    client.commit(append_intent(client.head(), transaction_id=mine))
    for _ in range(10):
        client.append()
    assert world.client().committed(mine).version == 0


def test_ids_of_other_forms_are_looked_for_everywhere(world: World) -> None:
    client, mine = world.client(FEW), f"nightly-{uuid.uuid4().hex}"
    client.commit(append_intent(client.head(), transaction_id=mine, claimed_ms=SystemClock().now_ms() - 30 * DAY_MS))
    for _ in range(10):
        client.append()
    assert made_ms(mine) is None
    assert made_ms(str(uuid.uuid4())) is None
    world.client().committed(mine)


def test_a_search_of_the_log_heeds_its_deadline(world: World) -> None:
    with_history(world, old=0, new=20)
    before = read_versions(world)
    with pytest.raises(Unavailable, match="ask again with a longer timeout_s") as late:
        world.client().outcome("nobody", 0.0)
    assert read_versions(world) - before <= 1
    assert late.value.details["version"] == 19


def flapping(world: World, client: Client) -> None:
    """The session ends after every list of records, so that none is known to be up to date."""

    def end(call: Call) -> None:
        if call.session_id == client.session.session_id and (call.verb, call.path) == ("children", world.tree.verdicts):
            client.session.expire()

    world.coordination.after = end


def test_sessions_that_end_again_and_again_are_told_at_the_deadline(world: World) -> None:
    client = world.client()
    client.append()
    flapping(world, client)
    with pytest.raises(Unavailable, match="ask again"):
        client.outcome("nobody", 0.2)
    with bounding(0.2, SystemClock()), pytest.raises(CoordinatorUnavailable, match="in the time given; repeat it"):
        client.context.up_to_date(lambda: client.coordinated.verdicts.search("nobody"))
    world.coordination.after = None


@pytest.mark.slow
def test_ids_tell_when_they_were_made_and_are_never_the_same(world: World) -> None:
    """Also those of one moment, which are numbered; the clock may go back."""
    calendar = Calendar()
    presence = Presence(world.coordination.connect, clock=calendar)
    ids = [presence.begin() for _ in range(150)]
    calendar.days = -1
    ids += [presence.begin() for _ in range(150)]
    again = [presence.again(each) for each in ids]
    assert len({*ids, *again}) == 600
    assert len({owner_of(each) for each in (*ids, *again)}) == 1
    now = SystemClock().now_ms()
    assert abs((made_ms(ids[0]) or 0) - now) < 60_000
    assert abs((made_ms(ids[-1]) or 0) - now + DAY_MS) < 60_000
    plan = new_plan_id(now)
    assert abs((made_ms(another_id(plan)) or 0) - now) < 60_000
    assert owner_of(another_id(plan)) == owner_of(plan)


def test_whether_it_is_decided_is_in_doubt_where_that_takes_longer_than_the_call_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over, and the versions of a day would have to be read."""
    calendar = with_history(world, old=0, new=30)
    client = world.client()
    winner, read = RatifiedLog.winner, list[int]()

    def slowly(log: RatifiedLog, version: int) -> Winner:
        time.sleep(0.1)
        read.append(version)
        return winner(log, version)

    monkeypatch.setattr(RatifiedLog, "winner", slowly)
    with bounding(soon(0.0), SystemClock()):
        assert client.coordinated.verdicts.knows(new_id(new_client(), 0, 7, calendar.now_ms()))
    assert len(read) < 10, "of 30 versions"


@pytest.mark.notices("a-call-within-a-call-ends-with-it")
def test_a_call_that_another_one_makes_ends_with_it() -> None:
    with bounding(5.0) as outer:
        with bounding(60.0) as inner:
            assert inner is outer
        with bounding(1.0) as inner:
            assert inner.left_s <= 1.0
        assert 1.0 < outer.left_s <= 5.0
