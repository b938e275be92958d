"""The leak check itself: it would be worth nothing if it found nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

from tests import processes

_SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_detached_grandchild_is_found_and_ended() -> None:
    mark = uuid.uuid4().hex
    starter = f"import subprocess, time; subprocess.Popen({_SLEEP!r}, start_new_session=True)"
    subprocess.run([sys.executable, "-c", starter], check=True, env={**os.environ, processes.MARK: mark})

    [left] = processes.wait_for_end(mark, patience_s=0.0)
    left.kill()

    assert "time.sleep(60)" in left.command
    assert processes.wait_for_end(mark, patience_s=10.0) == []


def test_processes_of_others_are_left_alone() -> None:
    assert processes.marked(uuid.uuid4().hex) == []


def test_the_environment_holds_no_setting_of_the_user() -> None:
    assert os.environ["AWS_ACCESS_KEY_ID"] == "testing"
    assert Path(os.environ["SLUICE_HOME"]).parent.name.startswith("sluice-tests-")
