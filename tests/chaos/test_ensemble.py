"""Servers of ZooKeeper that tests kill: one that refuses its own data gets those of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from .ensemble import Ensemble

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]


@pytest.mark.long
def test_a_server_whose_epoch_is_older_than_its_data_starts_without_them(tmp_path: Path) -> None:
    """It was killed between the leader's snapshot and its note of the leader's epoch: here the note is put back."""
    servers = Ensemble(tmp_path / "servers")
    try:
        servers.start()
        client = KazooClient(servers.hosts)
        client.start()
        client.create("/there")
        client.stop()
        client.close()
        victim = (servers.leader() + 1) % 3
        servers.kill(victim)
        servers.start_server(victim)
        servers.await_service()  # it has what was written
        servers.kill(victim)
        folder = tmp_path / "servers" / f"server-{victim + 1}"
        note = folder / "data" / "version-2" / "currentEpoch"
        note.write_text("0")
        servers.start_server(victim)
        servers.await_service()
        assert note.read_text().strip() != "0"
        assert "is older than the last zxid" in (folder / "server.log").read_text(), "it never refused its data"
    finally:
        servers.close()
