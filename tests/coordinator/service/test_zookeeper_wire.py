"""What the client library waits with for its sockets."""

from __future__ import annotations

import select
import socket

import pytest

from sluice.coordinator.service.zookeeper.wire import polled


def test_sockets_that_can_be_read_and_written_are_told_apart() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert polled([one], [], [], 0) == ([], [], [])
        assert polled([], [one], [], 0) == ([], [one], [])
        assert polled([one], [other], [], 0) == ([], [other], [])
        other.send(b"x")
        assert polled([one, other], [], [], 1.0) == ([one], [], [])
        assert polled([one], [other], [], None) == ([one], [other], [])
        other.close()
        assert polled([one], [], [], 1.0) == ([one], [], [])  # its end is something to read


def test_a_closed_socket_is_an_error() -> None:
    one, other = socket.socketpair()
    other.close()
    one.close()
    with pytest.raises(ValueError, match="negative"):
        polled([one], [], [], 0)


def test_one_look_is_one_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is made for it."""
    monkeypatch.setattr(select, "epoll", None)
    monkeypatch.delattr(select, "select")
    one, other = socket.socketpair()
    with one, other:
        assert polled([one], [other], [], 0) == ([], [other], [])
