"""Hints say a command that works for this installation."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from sluice.installation import install_command


class Record:
    """A distribution with this `direct_url.json`, or none."""

    def __init__(self, url: str | None) -> None:
        self.url = url

    def read_text(self, name: str) -> str | None:
        return None if self.url is None or name != "direct_url.json" else json.dumps({"url": self.url, "dir_info": {}})


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("file:///home/me/sluice", "pip install '/home/me/sluice[sql]'"),
        ("file:///home/me/my%20code", "pip install '/home/me/my code[sql]'"),
        ("https://files.example/sluice.whl", "pip install 'https://files.example/sluice.whl[sql]'"),
        (None, "pip install 'sluice-delta[sql]'"),
    ],
)
def test_an_extra_is_installed_from_where_sluice_came(url: str | None, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda _: Record(url))
    assert install_command("sql") == command


def test_sources_without_an_installation_name_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Record:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("spark") == "pip install 'sluice-delta[spark]'"
