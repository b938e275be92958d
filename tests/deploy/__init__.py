"""What `deploy/` says, checked with the tools that read it. A test of a tool that is not there is skipped, and names it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click
import pytest

from sluice.cli import main

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".tools" / "bin"
"""Where `make deploy-tools` puts them."""


def tool(name: str) -> str:
    """The program of this name; skips the test without one."""
    program = shutil.which(name, path=os.pathsep.join([str(TOOLS), os.environ.get("PATH", "")]))
    if program is None:
        pytest.skip(f"{name} is not installed: make deploy-tools")
    return program


def command(name: str) -> click.Command | None:
    """A command of sluice; None if this release has none of that name."""
    group: click.Command = main
    assert isinstance(group, click.Group)
    return group.get_command(click.Context(group), name)


def unknown_options(made: click.Command, options: list[str]) -> set[str]:
    """Those of the options that the command does not have."""
    return {each for each in options if each.startswith("--")} - {option for parameter in made.params for option in parameter.opts}


def default_port(made: click.Command) -> int:
    [port] = [each.default for each in made.params if each.name == "port"]
    assert isinstance(port, int)
    return port


def grace_s() -> float:
    """How long the daemon's task has after a signal to end, with time to give up its leases."""
    made = command("daemon")
    assert made is not None
    [grace] = [each.default for each in made.params if each.name == "grace_s"]
    assert isinstance(grace, float)
    return grace + 4
