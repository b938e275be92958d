"""Who is connected."""

from __future__ import annotations

import os
import socket

import pytest

from sluice.coordinator.memory import Fault, MemoryCoordination
from sluice.coordinator.presence import Client, announce, list_clients
from sluice.version import __version__


def test_nobody_is_connected_to_an_empty_tree() -> None:
    assert list_clients(MemoryCoordination().connect()) == []


def test_clients_are_listed_oldest_first_with_what_they_said() -> None:
    coordination = MemoryCoordination()
    late, early = coordination.connect(), coordination.connect()
    announce(late, application="late", since_ms=2000)
    path = announce(early, application="early", since_ms=1000)
    assert [client.application for client in list_clients(late)] == ["early", "late"]
    expected = Client(path.removeprefix("/clients/"), socket.gethostname(), os.getpid(), "early", 1000, __version__)
    assert list_clients(early)[0] == expected


def test_announcing_again_changes_nothing() -> None:
    store = MemoryCoordination().connect()
    first = announce(store, application="one", since_ms=1)
    assert announce(store, application="two", since_ms=2) == first
    assert [(client.application, client.since_ms) for client in list_clients(store)] == [("one", 1)]


def test_a_client_is_gone_with_its_session() -> None:
    coordination = MemoryCoordination()
    store, other = coordination.connect(), coordination.connect()
    announce(store, application="a")
    announce(other, application="b")
    store.expire()
    assert [client.application for client in list_clients(other)] == ["b"]


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
def test_a_lost_reply_does_not_lose_or_double_a_client(fault: Fault) -> None:
    coordination = MemoryCoordination()
    store = coordination.connect()
    coordination.inject(fault, verb="create")
    announce(store, application="a")
    assert len(list_clients(store)) == 1


def test_a_client_that_leaves_while_it_is_listed_is_left_out() -> None:
    coordination = MemoryCoordination()
    store, other = coordination.connect(), coordination.connect()
    announce(store, application="a")
    announce(other, application="b")
    coordination.before = lambda call: other.close() if call.verb == "read_many" else None
    assert [client.application for client in list_clients(store)] == ["a"]
