"""What `conftest` does for every test: the leak check would be worth nothing if it found nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests import processes
from tests.fixtures import spark_start

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


def test_spark_has_no_settings_of_the_user_and_starts_small() -> None:
    assert not list(Path(os.environ["SPARK_CONF_DIR"]).glob("*"))
    assert "-Dspark.sql.shuffle.partitions=2" in os.environ["SPARK_SUBMIT_OPTS"].split()


def test_shared_classes_are_asked_for_where_they_were_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spark_start, "_ARCHIVE", tmp_path / "spark.jsa")
    assert "SharedArchiveFile" not in spark_start.environment()["SPARK_SUBMIT_OPTS"]
    (tmp_path / "spark.jsa").touch()
    assert f"-XX:SharedArchiveFile={tmp_path}/spark.jsa" in spark_start.environment()["SPARK_SUBMIT_OPTS"].split()


def test_servers_of_zookeeper_share_classes_where_they_were_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spark_start, "_ZOOKEEPER_ARCHIVE", tmp_path / "zookeeper.jsa")
    assert spark_start.zookeeper_options() == []
    (tmp_path / "zookeeper.jsa").touch()
    assert f"-XX:SharedArchiveFile={tmp_path}/zookeeper.jsa" in spark_start.zookeeper_options()
