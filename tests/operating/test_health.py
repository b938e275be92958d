"""Whether a server may be taken out: with three real servers, of which one is stopped, paused, and comes back."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator.commit.decider import Decider
from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.publication import publisher
from sluice.coordinator.service.connect import release
from sluice.operating.document import Coordinator, Server
from sluice.operating.servers import await_sync, server_of
from sluice.operating.status import Health, _server_checks
from sluice.storage.errors import InvalidRequest
from tests.chaos.ensemble import Ensemble

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("zookeeper"))
    ensemble.start()
    yield ensemble
    ensemble.close()


@pytest.fixture
def coordinator(servers: Ensemble) -> Iterator[str]:
    address = f"zk://{servers.hosts}/sluice?session_timeout_s=10"
    yield address
    release(address)


def answers(found: Health) -> dict[str, bool | None]:
    return {check.name: check.ok for check in found.checks}


def command(*arguments: str) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(main, ["health", "--json", *arguments])
    return result.exit_code, json.loads(result.output)


WELL = dict.fromkeys(("servers", "in sync", "commits", "publication", "waiting"), True)


@pytest.mark.zookeeper
@pytest.mark.slow
@pytest.mark.long
def test_one_of_three_servers_is_stopped_paused_and_comes_back(servers: Ensemble, coordinator: str, tmp_path: Path) -> None:
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    table.append(ROWS)
    assert answers(sluice.health(coordinator)) == WELL
    assert sorted(each.state for each in sluice.health(coordinator).servers) == ["follower", "follower", "leader"]
    for stop, go_on in ((servers.kill, servers.start_server), (servers.pause, servers.go_on)):
        number = (servers.leader() + 1) % 3
        stop(number)
        time.sleep(1)
        found = sluice.health(coordinator, timeout_s=15)
        assert answers(found) == {**WELL, "servers": False, "in sync": False}
        assert found.servers[number].state == "away"
        assert command("--coordinator", coordinator)[0] == 1
        table.append(ROWS)  # two of three are a quorum
        go_on(number)
        status, told = command("--coordinator", coordinator, "--wait", "60")
        assert (status, told["ok"]) == (0, True)
    for number in (0, 1):
        servers.kill(number)
    found = sluice.health(coordinator, timeout_s=2)
    assert found.ok is False
    assert answers(found)["commits"] is False
    assert answers(found)["publication"] is None
    for number in (0, 1):
        servers.start_server(number)
    assert command("--coordinator", coordinator, "--wait", "60")[0] == 0


def test_without_servers_the_rest_is_told(tmp_path: Path) -> None:
    assert answers(sluice.health("memory://healthy")) == WELL
    with pytest.raises(InvalidRequest, match="bound_s"):
        sluice.health("memory://healthy", bound_s=-1)


def test_a_version_that_nobody_publishes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = "memory://unpublished"
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    table.append(ROWS)

    def fail(*_: object, **__: object) -> bool:
        raise sluice.errors.StorageUnavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(publisher.Publisher, "publish", fail)
        commit = table.append(ROWS, timeout_s=2)  # time enough to be decided
        assert commit is not None
        assert not commit.published
        assert answers(sluice.health(coordinator)) == WELL
        time.sleep(0.2)
        found = sluice.health(coordinator, bound_s=0.1)
        assert answers(found) == {**WELL, "publication": False}
        assert table.location in next(check.told for check in found.checks if check.name == "publication")
        assert command("--coordinator", coordinator, "--bound", "0.1")[0] == 1
    table.append(ROWS)
    assert answers(sluice.health(coordinator, bound_s=0.1)) == WELL


def test_a_commit_that_nobody_decides_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = "memory://undecided"
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    with monkeypatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        table.coordinated.alone = False
        with pytest.raises(OutcomeUnknown):
            table.append(ROWS, timeout_s=0.3)
        found = sluice.health(coordinator, bound_s=0.1)
        assert answers(found) == {**WELL, "waiting": False}


LEADER, FOLLOWER = Server("a:1", "leader", 10, in_sync=True), Server("b:1", "follower", 10, in_sync=True)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ((LEADER, FOLLOWER), (True, True)),
        ((LEADER, Server("b:1", "follower", 9, in_sync=False)), (True, False)),
        ((LEADER, Server("b:1", "closed")), (None, None)),
        ((Server("a:1", "closed"), Server("b:1", "closed")), (None, None)),
        ((Server("b:1", "follower", 10),), (True, None)),
        ((LEADER, Server("b:1", "not serving", in_sync=False)), (False, False)),
        ((LEADER, Server("b:1", "away", in_sync=False)), (False, False)),
        ((Server("a:1", "closed"), Server("b:1", "away", in_sync=False)), (False, False)),
        ((Server("a:1", "standalone", 3, in_sync=True),), (True, True)),
        ((), (None, None)),
    ],
)
def test_what_servers_say_is_judged(servers: tuple[Server, ...], expected: tuple[bool | None, ...]) -> None:
    seen = Coordinator(
        address="zk://a:1,b:1/sluice",
        write_s=0.01,
        trouble=None,
        servers=servers,
        may_stop_before_commits_do=None,
        may_be_lost_before_data_are=None,
        clients={},
    )
    assert tuple(check.ok for check in _server_checks(seen)) == expected


def test_a_server_that_does_not_answer_takes_no_time_from_one_that_catches_up() -> None:
    with ExitStack() as stack:
        names = [stack.enter_context(answering(*answers)) for answers in ([("leader", 16)], [("follower", 15), ("follower", 16)], [])]
        servers = await_sync(names, None, 1.0)
    states = (("leader", 16, True), ("follower", 16, True), ("away", -1, False))
    assert servers == tuple(Server(name, *state) for name, state in zip(names, states, strict=True))


@contextmanager
def answering(*answers: tuple[str, int]) -> Iterator[str]:
    """A server that gives these answers to `srvr`, the last one ever again; without any it takes connections and is silent."""
    left = list(answers)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if not left:
                over.wait()
                return
            mode, zxid = left.pop(0) if len(left) > 1 else left[0]
            self.request.sendall(f"Zxid: {zxid:#x}\nMode: {mode}\n".encode())

    over = threading.Event()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            over.set()
            server.shutdown()


def test_answers_of_servers_are_read() -> None:
    assert server_of("a:1", "Zookeeper version: 3.9\nZxid: 0x10000002a\nMode: follower\n") == Server("a:1", "follower", 0x10000002A)
    assert server_of("a:1", "srvr is not executed because it is not in the whitelist.").serves is None
    assert server_of("a:1", "This ZooKeeper instance is not currently serving requests").state == "not serving"
