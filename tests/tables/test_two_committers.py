"""One plan that two processes commit at once: found by the model of the protocol (docs/model.md)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.outcomes import Outcome
from sluice.storage.memory import MemoryStore
from sluice.tables.commits import commit_write

SCHEMA = pa.schema([pa.field("a", pa.int64())])


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_plan_that_another_process_commits_after_one_asked_for_it_is_committed_once(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"memory://two-committers-{mode}"
    try:
        table = sluice.Table.create(place, SCHEMA, coordinator=place)
        table.append(pa.table({"a": [1]}, schema=SCHEMA))
        other = sluice.Table.open(place, coordinator=place)
        plan = table.plan_write(SCHEMA, mode=mode)
        files = plan.write(pa.table({"a": [2]}, schema=SCHEMA))
        committer = table._access.ours
        ask = committer.outcome
        versions: list[int] = []

        def and_then_the_other_commits(*words: Any, **named: Any) -> Outcome:
            told = ask(*words, **named)
            if not versions:
                done = commit_write(other._access, plan, files, ack="published", timeout_s=5)
                assert done is not None
                versions.append(done.version)
            return told

        monkeypatch.setattr(committer, "outcome", and_then_the_other_commits)
        commit = table.commit_write(plan, files)
        assert commit is not None
        assert [commit.version] == versions
        assert commit.repeated
        assert table.refresh().version == versions[0]
    finally:
        MemoryStore(place).forget()
