"""What "published" means: the file is in the log, whoever asks and whenever it is said."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.limits import Limits
from sluice.coordinator.memory import Call
from sluice.coordinator.records import Published
from sluice.coordinator.store import Write
from sluice.storage.errors import ObjectNotFound
from sluice.storage.paths import commit_path

from .world import DIRECT, QUICK, World, append_intent, rewrite_intent

BOTH_PATHS = pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.check()


def is_there(world: World, version: int) -> bool:
    try:
        return bool(world.objects.get(commit_path(version)))
    except ObjectNotFound:
        return False


@BOTH_PATHS
def test_published_is_raised_when_the_files_are_there(world: World, limits: Limits) -> None:
    raised: dict[int, bool] = {}

    def look(call: Call) -> None:
        for op in call.ops:
            if isinstance(op, Write) and op.path == world.tree.published:
                version = Published.decode(op.data).version
                raised[version] = is_there(world, version)

    world.coordination.before = look
    client = world.client(limits)
    for _ in range(3):
        client.append()
    assert raised == {0: True, 1: True, 2: True}


@BOTH_PATHS
def test_who_is_answered_finds_the_file(world: World, limits: Limits) -> None:
    world.objects.disk.slow("put_if_absent", lambda: time.sleep(0.05), times=10)
    client = world.client(limits)
    for version in range(3):
        commit = client.commit(append_intent(client.head()))
        assert commit.published
        assert is_there(world, version)


@BOTH_PATHS
def test_no_more_is_ratified_than_may_wait(world: World, limits: Limits) -> None:
    """While nothing can be published the backlog fills, and then nothing more is decided: records of what waits are not pruned."""
    client = world.client(limits.but(backlog_versions_max=2, verdicts_kept=3, publication_wait_s=0.05))
    client.append("0.parquet")
    world.objects.disk.fail_before("put_if_absent", times=10_000)
    for n in range(2):
        client.commit(rewrite_intent(client.head(), f"{n}.parquet", f"{n + 1}.parquet"), ack="ratified", timeout_s=30)
    intent = rewrite_intent(client.head(), "2.parquet", "3.parquet")
    with pytest.raises(OutcomeUnknown):
        client.commit(intent, ack="ratified", timeout_s=0.3)
    published = client.context.read_published()
    assert published is not None
    assert client.head().version - published[0].version == 2
    world.objects.disk.faults.clear()
    client.append("last.parquet")
