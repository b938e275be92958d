"""What is written where: pictures of a store and of a coordinator's tree, taken before and after a call that must change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.service.memory import MemoryCoordination
from sluice.storage.stores.objects import ObjectStore

SHARED = ("/clients", "/graves", "/open", "/tables")
"""What every client of a coordinator makes when it first needs it."""

Picture = Mapping[str, object]


def files_below(folder: str | Path) -> Picture:
    """Every file below a folder, hidden ones too, with its bytes."""
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def objects_of(store: ObjectStore) -> Picture:
    """Every object of a store, with its bytes."""
    return {info.key: store.get(info.key) for info in store.list_from("", recursive=True)}


def nodes_of(coordinator: str) -> Picture:
    """The tree of a coordinator in memory, without the ephemeral nodes that say who is connected."""
    walked = MemoryCoordination.named(coordinator.removeprefix("memory://")).tree.walk()
    return {node.path: (node.data, node.version) for node in walked if not node.owner_session and node.path not in SHARED}


@contextmanager
def refused(
    error: type[sluice.errors.SluiceError], *words: str, leaves: Callable[[], Picture]
) -> Iterator[pytest.ExceptionInfo[sluice.errors.SluiceError]]:
    """The block raises exactly `error`, its message holds all the words, and what `leaves` shows is as it was."""
    before = leaves()
    with pytest.raises(error) as caught:
        yield caught
    assert type(caught.value) in (error, sluice.errors.InvalidArgument if error is sluice.errors.InvalidRequest else error), repr(
        caught.value
    )
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert leaves() == before
