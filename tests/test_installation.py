"""Hints say a command that works for this installation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

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
        ("", "pip install 'sluice-delta[sql]'"),
    ],
)
def test_an_extra_is_installed_from_where_sluice_came(url: str | None, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None: from an index; "": sources without an installation."""

    def distribution(name: str) -> Record:
        if url == "":
            raise metadata.PackageNotFoundError(name)
        return Record(url)

    monkeypatch.setattr(metadata, "distribution", distribution)
    assert install_command("sql") == command


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock two at once are not told apart")
def test_two_commands_at_once_make_one_environment(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "scripts" / "make-environment"
    (tmp_path / "pyproject.toml").touch()
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text('#!/bin/sh\necho "$1" >> calls\nsleep 0.3\n')
    uv.chmod(0o755)
    command = [str(script), "environment", sys.executable, "environment/.ready-1"]
    environment = {**os.environ, "PATH": f"{uv.parent}{os.pathsep}{os.environ['PATH']}"}
    both = [subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [each.wait(60) for each in both] == [0, 0]
    assert (tmp_path / "calls").read_text().split() == ["venv", "pip", "pip"]
    (tmp_path / "pyproject.toml").write_text("changed")
    os.utime(tmp_path / "environment" / ".ready-1", (0, 0))
    assert subprocess.run(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode == 0
    assert (tmp_path / "calls").read_text().split() == ["venv", "pip", "pip"] * 2
