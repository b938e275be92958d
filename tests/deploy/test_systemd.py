"""The units of `deploy/systemd`, as systemd reads them; their commands are commands of sluice."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy import DEPLOY, command, default_port, grace_s, tool, unknown_options

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def settings(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    return parser["Service"]


def test_there_is_a_unit_for_each_server() -> None:
    assert [unit.stem for unit in UNITS] == ["sluice-console", "sluice-daemon", "sluice-exporter"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    """Its program is put where it is on this machine: systemd looks for it."""
    program = Path(sys.executable).parent / "sluice"
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/sluice/bin/sluice", str(program)))
    done = subprocess.run([tool("systemd-analyze"), "verify", str(copy)], capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert (done.returncode, said) == (0, [])
    copy.write_text(copy.read_text().replace("Restart=always", "Restrt=always"))
    done = subprocess.run([tool("systemd-analyze"), "verify", str(copy)], capture_output=True, text=True, check=False)
    assert "Restrt" in done.stdout + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_with_options_that_it_has(unit: Path) -> None:
    program, name, *options = shlex.split(settings(unit)["ExecStart"])
    assert program == "/opt/sluice/bin/sluice"
    assert unit.stem == f"sluice-{name}"
    made = command(name)
    if made is None:
        pytest.skip(f"this release has no sluice {name}")
    assert unknown_options(made, options) == set()
    assert options[options.index("--port") + 1] == str(default_port(made))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_has_no_rights_that_it_does_not_need_and_no_secrets(unit: Path) -> None:
    service = settings(unit)
    for name, value in {
        "DynamicUser": "yes",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "CapabilityBoundingSet": "",
        "EnvironmentFile": "/etc/sluice/sluice.env",
    }.items():
        assert service[name] == value
    assert not re.search(r"AWS_|PASSWORD=|SECRET=", "".join(line for line in unit.read_text().splitlines() if not line.startswith("#")))
    assert "--host 127.0.0.1" in service["ExecStart"]


def test_the_daemon_ends_before_it_is_killed_and_that_is_no_failure() -> None:
    service = settings(DEPLOY / "systemd" / "sluice-daemon.service")
    assert float(service.get("TimeoutStopSec", "90")) > grace_s()
    assert service["SuccessExitStatus"] == "143"


def test_the_exposure_of_the_daemon_to_the_system_is_what_systemd_calls_ok(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    command = [tool("systemd-analyze"), "security", "--offline=true", "--threshold=35", str(DEPLOY / "systemd" / "sluice-daemon.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-400:] + done.stderr
