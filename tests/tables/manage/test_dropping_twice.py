"""Two clients that delete the data of one dropped table: one at a time, and no table is made in the place before the last one is done."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import sluice
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.service.memory import Fault
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.location import normalise
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.client.address import TableAddress
from sluice.tables.manage import dropping
from tests.tables.conftest import Place, flights
from tests.tables.elsewhere import disk_of, expire_all, rested, service_of


@pytest.fixture
def place() -> Iterator[Place]:
    name = f"dropping-twice-{os.urandom(8).hex()}"
    yield Place(f"memory://{name}", f"memory://{name}")
    MemoryStore.open(name).forget()


def filled(place: Place) -> None:
    place.create()
    for number in range(2):
        place.open().append(flights(("JFK", 1, number)))


def dropped(place: Place) -> sluice.DropReport:
    return dropping.drop(TableAddress.of(place.location, place.coordinator))


def deleters(place: Place) -> list[str]:
    return service_of(place).connect().children(TableTree(normalise(place.location)).tombstone) or []


@pytest.mark.slow
def test_while_one_deletes_nobody_else_does_and_no_table_is_made(place: Place) -> None:
    filled(place)
    met: list[BaseException] = []

    def paused() -> None:
        for act in (lambda: dropped(place), place.create):
            with pytest.raises(sluice.errors.SluiceError, match="being d") as refused:
                act()
            met.append(refused.value)

    disk_of(place).slow("delete", paused, "_delta_log/*")
    assert dropped(place).version == 3
    assert [(type(each), each.retryable) for each in met] == [(sluice.errors.Unavailable, True), (sluice.errors.InvalidRequest, False)]  # type: ignore[attr-defined]
    assert deleters(place) == []
    assert place.create().version == 0


@pytest.mark.shows("drop-killed")
@pytest.mark.notices("the-place-rests-after-a-deleter-that-vanished")
@pytest.mark.parametrize("fails", [False, True])
def test_where_one_who_deleted_went_without_a_word_the_place_rests(place: Place, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """A DELETE of a log file that is on its way meets no file of another table."""
    filled(place)

    def paused() -> None:
        expire_all(place)
        if fails:  # the one who takes over fails: what it did not do is repeated
            disk_of(place).fail_before("delete")
            with pytest.raises(sluice.errors.StorageUnavailable):
                dropped(place)
        assert dropped(place).version == 3
        with pytest.raises(sluice.errors.Unavailable, match=r"disappeared before it was done.*Try again in 4[78][0-9] s") as refused:
            place.create()
        assert refused.value.retryable

    disk_of(place).slow("delete", paused, "_delta_log/*")
    with pytest.raises((sluice.errors.TableDropped, sluice.errors.Unavailable), match=r"was dropped|claim to delete .* is gone"):
        dropped(place)
    with pytest.raises(sluice.errors.Unavailable, match="disappeared before it was done"):
        place.create()
    rested(place)
    assert place.create().version == 0
    assert deleters(place) == []
    assert place.open().drop().version == 1
    assert place.create().version == 0, "the next one needs no rest"


@pytest.mark.notices("a-stray-version-is-removed-under-a-claim")
@pytest.mark.parametrize("expires", [False, True])
def test_who_removes_a_version_of_the_former_table_removes_none_of_the_next_one(place: Place, expires: bool) -> None:
    filled(place)
    dropped(place)
    stray = commit_path(2)
    disk_of(place).store(stray, b"{}")

    def paused() -> None:
        if expires:
            expire_all(place)
        with pytest.raises(
            sluice.errors.Unavailable, match=r"was dropped, and (its data are being|a client that deleted its data disappeared)"
        ):
            filled(place)

    disk_of(place).slow("delete", paused, stray)
    assert place.create().version == 0
    filled_up = place.open()
    for number in range(3):
        filled_up.append(flights(("JFK", 1, number)))
    assert stray in disk_of(place).objects
    assert deleters(place) == (["left"] if expires else [])


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
@pytest.mark.parametrize("message", range(2))
def test_whatever_message_about_the_deletion_is_lost(place: Place, fault: Fault, message: int) -> None:
    filled(place)
    service_of(place).inject(fault, verb="apply", path="/deleter", skip=message)
    assert dropped(place).version == 3
    assert deleters(place) == []
    assert place.create().version == 0


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
def test_who_fails_gives_the_deletion_back_whatever_message_is_lost(place: Place, fault: Fault) -> None:
    filled(place)
    disk_of(place).fail_before("delete")
    service_of(place).inject(fault, verb="apply", path="/deleter", skip=1)
    with pytest.raises(sluice.errors.StorageUnavailable):
        dropped(place)
    assert deleters(place) == []
    assert dropped(place).version == 3
