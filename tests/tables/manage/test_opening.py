"""Opening a table whose log does not show yet that it is sluice's, or that it is not: who attached it or gave it back died."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.nodes.presence import new_plan_id
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.memory import MemoryCoordination, MemorySession
from sluice.storage.log.paths import commit_path
from sluice.storage.log.segment import latest_version
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.client.address import TableAddress
from sluice.tables.manage import creation
from tests.mending import mend
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.elsewhere import disk_of

IMPATIENT = Limits(patience_s=0.02, patience_s_max=0.1, publication_wait_s=0.1)
ENTRANCES = {
    "open": lambda place: place.open(),
    "attach": lambda place: sluice.Table.attach(place.location, coordinator=place.coordinator),
}
Entrance = Callable[[Place], sluice.Table]


class Elsewhere(TableAddress):
    """The address of a table for another client, which is not there for long."""

    __slots__ = ()

    def context(self, limits: Limits | None = None) -> TableContext:
        session = MemoryCoordination.named(str(self.coordinator).removeprefix("memory://")).connect()
        return TableContext(
            self.store(), TableTree(self.location), lambda: session, limits=limits or IMPATIENT, coordinator=self.coordinator
        )


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


@pytest.fixture(params=list(ENTRANCES))
def entrance(request: pytest.FixtureRequest) -> Entrance:
    """A way to a table that sluice manages."""
    return ENTRANCES[request.param]


@contextmanager
def unpublished(place: Place, version: int) -> Iterator[None]:
    """Nobody gets that version published meanwhile."""
    disk = disk_of(place)
    disk.fail_before("put_if_absent", commit_path(version), times=1_000_000)
    yield
    mend(disk)


def given_back(place: Place) -> None:
    """Versions 0 to 2: created, filled, given back."""
    place.create()
    table = place.open(limits=IMPATIENT)
    table.append(flights(("JFK", 1, 1)))
    table.detach()


def attached_by_who_dies(place: Place) -> None:
    """Version 3 is ratified, and its publisher is gone."""
    with unpublished(place, 3):
        _, commit = creation.attach(Elsewhere(place.location, place.coordinator))
    assert commit is not None
    assert (commit.version, commit.published) == (3, False)
    assert latest_version(MemoryStore(place.location)) == 2


@pytest.mark.shows("attaching-killed")
def test_a_table_that_was_attached_is_one_although_nobody_published_that(place: Place, entrance: Entrance) -> None:
    given_back(place)
    attached_by_who_dies(place)
    table = entrance(place)
    assert table.append(flights(("EWR", 1, 2))) is not None
    assert rows_of(table.snapshot().to_arrow()) == [("EWR", 1, 2), ("JFK", 1, 1)]
    assert [each.operation for each in table.history()] == ["WRITE", "ATTACH", "DETACH", "WRITE", "CREATE TABLE"]


def test_the_server_may_be_behind(place: Place, entrance: Entrance) -> None:
    given_back(place)
    session = connect(place.coordinator)
    assert isinstance(session, MemorySession)
    session.lag = 1_000
    attached_by_who_dies(place)
    assert entrance(place).version == 3


def test_a_table_that_was_given_back_is_attached_again_although_nobody_published_that(place: Place) -> None:
    place.create()
    table = place.open(limits=IMPATIENT)
    with unpublished(place, 1):
        assert not table.detach().published
    again = sluice.Table.attach(place.location, coordinator=place.coordinator)
    again.append(flights(("JFK", 1, 1)))
    assert [each.operation for each in again.history()] == ["WRITE", "ATTACH", "DETACH", "CREATE TABLE"]


def test_whoever_opens_it_instead_publishes_that_it_is_the_others_to_write(place: Place) -> None:
    place.create()
    table = place.open(limits=IMPATIENT)
    with unpublished(place, 1):
        assert not table.detach().published
    with pytest.raises(sluice.errors.NotATable, match=r"sluice\.Table\.attach"):
        place.open()
    assert latest_version(MemoryStore(place.location)) == 1


@pytest.mark.shows("attaching-killed")
def test_another_engine_that_wrote_in_its_place_is_named(place: Place, entrance: Entrance) -> None:
    """It could not know: the log said that the table was everybody's."""
    given_back(place)
    attached_by_who_dies(place)
    disk_of(place).store(commit_path(3), b'{"commitInfo":{"operation":"WRITE","timestamp":1}}\n')
    with pytest.raises(sluice.errors.ForeignCommit, match="move the file to another place") as caught:
        entrance(place)
    assert caught.value.version == 3
    disk_of(place).objects.pop(commit_path(3))
    assert entrance(place).version == 3


# -- before there is a table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stranger", "error"),
    [
        (None, sluice.errors.TableNotFound),
        ("part-00000-5fba94ed-9794-4965-ba6e-6ee3c0d22af9-c000.snappy.parquet", sluice.errors.NotATable),
        ("_delta_log/_last_checkpoint", sluice.errors.NotATable),
    ],
)
def test_what_a_writer_left_that_did_not_come_to_create_the_table_is_no_table(
    place: Place, stranger: str | None, error: type[sluice.errors.SluiceError]
) -> None:
    owner = new_plan_id(1_000)
    left = [f"origin=JFK/part-00000-{owner}-files-c000.zstd.parquet", f"_delta_log/_staged_commits/{owner}.json"]
    for key in [*left, *([] if stranger is None else [stranger])]:
        disk_of(place).store(key, b"{}")
    with pytest.raises(sluice.errors.SluiceError) as refused:
        place.open()
    assert type(refused.value) is error
    if stranger is None:
        place.filled(("JFK", 1, 1))
        assert rows_of(place.open().snapshot().to_arrow()) == [("JFK", 1, 1)]
        assert set(left) <= set(disk_of(place).objects), "their owner may live, and vacuum knows when not"
