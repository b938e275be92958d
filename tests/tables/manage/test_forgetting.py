"""Nodes that have what no log has are not forgotten by accident."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator.publication.publisher import Publisher
from tests.mending import publishers_are_idle
from tests.tables.conftest import Place, flights

from .test_dropping import filled, local, nodes_of

__all__ = ["local"]


def unable_to_publish(*_: object) -> bool:
    raise sluice.errors.StorageUnavailable("injected: the log cannot be written")


def test_nodes_with_versions_that_only_they_have_are_not_forgotten(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(local)
    monkeypatch.setattr(Publisher, "_put", unable_to_publish)
    other = local.open(ack="ratified", timeout_s=5)
    for number in (3, 4):
        other.append(flights(("LGA", 3, number)))
    publishers_are_idle()
    aside = Path(f"{local.location}-aside")
    Path(local.location).rename(aside)
    before = nodes_of(local)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"versions 3 to 4 are ratified and not published.*--lose-unpublished"):
        sluice.forget(local.location, coordinator=local.coordinator)
    assert nodes_of(local) == before
    aside.rename(local.location)
    monkeypatch.undo()
    assert local.open().snapshot().to_arrow().num_rows == table.snapshot(version=2).to_arrow().num_rows + 2
    assert table.coordinated.publish() == 4
    shutil.rmtree(local.location)
    assert sluice.forget(local.location, coordinator=local.coordinator) == 4


def test_unpublished_versions_are_lost_on_purpose_only(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(local)
    monkeypatch.setattr(Publisher, "_put", unable_to_publish)
    local.open(ack="ratified", timeout_s=5).append(flights(("LGA", 3, 3)))
    publishers_are_idle()
    shutil.rmtree(local.location)
    with pytest.raises(sluice.errors.InvalidRequest, match="version 3 is ratified"):
        sluice.forget(local.location, coordinator=local.coordinator)
    command = ["forget", local.location, "--coordinator", local.coordinator]
    assert "is ratified and not published" in CliRunner().invoke(main, command).output
    assert "was at version 3" in CliRunner().invoke(main, [*command, "--lose-unpublished"]).output
    assert nodes_of(local) == []
