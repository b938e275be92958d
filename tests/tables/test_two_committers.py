"""One plan that two processes commit at once: found by the model of the protocol (docs/model.md), and by the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.commit.outcomes import Outcome
from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.leases.tickets import take_ticket
from sluice.coordinator.nodes.context import TableContext
from sluice.storage.stores.memory import MemoryStore
from sluice.tables import planned_writes as commits
from sluice.tables.client.address import TableAddress
from sluice.tables.planned_writes import commit_creation, commit_write, plan_creation

SCHEMA = pa.schema([pa.field("a", pa.int64())])
WIDER = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64())])
SEEN: dict[str, Callable[[sluice.Table], object]] = {
    "nothing": lambda _: None,
    "head": lambda table: table._access.head(),
    "snapshot": lambda table: table.refresh(),
}


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize(("mode", "schema"), [("append", SCHEMA), ("append", WIDER), ("overwrite", SCHEMA)])
def test_a_plan_that_another_process_commits_after_one_asked_for_it_is_committed_once(
    mode: Any, schema: pa.Schema, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where this process saw that commit already, without knowing whose it is, when it files its own."""
    place = f"memory://two-committers-{mode}-{len(schema)}-{seen}"
    try:
        table = sluice.Table.create(place, SCHEMA, coordinator=place)
        table.append(pa.table({"a": [1]}, schema=SCHEMA))
        other = sluice.Table.open(place, coordinator=place)
        plan = table.plan_write(schema, mode=mode, merge_schema=schema is WIDER)
        files = plan.write(pa.table([[2]] * len(schema), schema=schema))
        committer = table._access.ours
        ask = committer.outcome
        versions: list[int] = []

        def and_then_the_other_commits(*words: Any, **named: Any) -> Outcome:
            told = ask(*words, **named)
            if not versions:
                done = commit_write(other._access, plan, files, ack="published", timeout_s=5)
                assert done is not None
                versions.append(done.version)
                SEEN[seen](table)
            return told

        monkeypatch.setattr(committer, "outcome", and_then_the_other_commits)
        commit = table.commit_write(plan, files)
        assert commit is not None
        assert [commit.version] == versions
        assert commit.repeated
        assert table.refresh().version == versions[0]
    finally:
        MemoryStore(place).forget()


def test_a_plan_of_a_table_that_others_created_first_is_committed_once_although_its_verdict_was_pruned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is filed under another name then, on the newest version there is, which may be its own. Who did so died before closing it."""
    monkeypatch.setattr(commits, "close_plan", lambda *_: None)
    place = "memory://two-committers-creation"
    try:
        plan = plan_creation(TableAddress.of(place, place), SCHEMA, (), {}, None)
        files = plan.write(pa.table({"a": [1]}, schema=SCHEMA))
        table = sluice.Table.create(place, SCHEMA, coordinator=place)
        _, first = commit_creation(plan, files, ack="published", timeout_s=5)
        assert first is not None
        assert (first.version, first.repeated) == (1, False)
        context = table._access.ours.context
        for name in context.coordination.children(context.tree.verdicts) or ():
            context.coordination.delete(f"{context.tree.verdicts}/{name}")
        _, again = commit_creation(plan, files, ack="published", timeout_s=5)
        assert again is not None
        assert (again.version, again.repeated) == (1, True)
        assert table.refresh().version == 1
    finally:
        MemoryStore(place).forget()


def test_the_loss_of_a_plan_that_was_to_create_its_table_took_as_long_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn lasts by that: it must not be measured from 1970."""

    def loses(*_: object, **__: object) -> None:
        raise sluice.ConcurrentModification("somebody else was faster")

    monkeypatch.setattr(commits, "commit_write", loses)
    place = "memory://two-committers-lost"
    try:
        plan = replace(plan_creation(TableAddress.of(place, place), SCHEMA, (), {}, None), mode="overwrite")
        table = sluice.Table.create(place, SCHEMA, coordinator=place)
        with pytest.raises(sluice.ConcurrentModification):
            commit_creation(plan, plan.write(pa.table({"a": [1]}, schema=SCHEMA)), ack="published", timeout_s=5)
        context = table.access.ours.context
        ticket = take_ticket(context, context.client.application, plan.work)
        assert ticket is not None
        assert ticket.took_s < 60
    finally:
        MemoryStore(place).forget()


@pytest.mark.parametrize("lost", [False, True], ids=["won", "lost"])
def test_trouble_after_the_verdict_changes_nothing_of_it(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    """The coordinator goes away right then, with the session; a turn cannot be released, nor a ticket be left."""
    place = f"memory://two-committers-away-{lost}"
    decided = commit_write

    def away(_: object) -> object:
        raise CoordinatorUnavailable("nobody answers")

    def then_away(*arguments: Any, **named: Any) -> Any:
        commit = decided(*arguments, **named)
        monkeypatch.setattr(TableContext, "coordination", property(away))
        if lost:
            raise sluice.ConcurrentModification("somebody else was faster")
        return commit

    monkeypatch.setattr(commits, "commit_write", then_away)
    try:
        table = sluice.Table.create(place, SCHEMA, coordinator=place)
        plan = replace(table.plan_write(SCHEMA, mode="overwrite"), turns=("/a/turn",))
        files = plan.write(pa.table({"a": [1]}, schema=SCHEMA))
        if lost:
            with pytest.raises(sluice.ConcurrentModification):
                table.commit_write(plan, files)
        else:
            commit = table.commit_write(plan, files)
            assert commit is not None
            assert commit.version == 1
    finally:
        monkeypatch.undo()
        MemoryStore(place).forget()
