"""The settings of a session, errors behind Spark's, and tables on S3."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sluice
from sluice.coordinator import errors as committing
from sluice.dev import S3DevServer
from sluice.spark_integration import original
from sluice.spark_integration.scan.file_rows import hadoop_options
from sluice.storage import errors as storing
from tests.fixtures.azure import AzureServer

from ..conftest import Place, is_native


def test_importing_sluice_does_not_import_pyspark() -> None:
    code = "import sys, sluice; sluice.Table; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_reach_the_environment_of_the_jvm_to_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sluice.spark_session.SparkContext._gateway", None)
    for name in ("SLUICE_COORDINATOR", "SLUICE_STORAGE_OPTIONS", "SLUICE_APPLICATION", "PYSPARK_PYTHON", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "")  # so that what is set below is undone
        monkeypatch.delenv(name)
    sluice.configure(SparkSession.Builder(), coordinator="zk://h1/x", storage_options={"region": "eu-1"}, application="job")
    assert os.environ["SLUICE_COORDINATOR"] == "zk://h1/x"
    assert os.environ["SLUICE_STORAGE_OPTIONS"] == '{"region": "eu-1"}'
    assert os.environ["SLUICE_APPLICATION"] == "job"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    found = subprocess.run([sys.executable, "-c", "import pyspark_sluice"], cwd=tmp_path, env=dict(os.environ), check=False)
    assert found.returncode == 0, "PYTHONPATH leads processes to sluice"


def test_settings_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.spark_session.SparkContext._gateway", None)
    with pytest.raises(sluice.errors.UnknownScheme, match="zk://"):
        sluice.configure(SparkSession.Builder(), coordinator="host:2181")
    with pytest.raises(sluice.errors.InvalidRequest, match="endpoint"):
        sluice.configure(SparkSession.Builder(), storage_options={"endpoint": "http://x"})


@pytest.mark.spark
def test_settings_that_come_too_late_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str | None] = []
    monkeypatch.setattr("sluice.spark_session.start_embedded", started.append)
    with pytest.raises(sluice.errors.InvalidRequest, match="before the first session"):
        sluice.configure(SparkSession.Builder(), coordinator="zk://another:2181/x")
    assert started == []
    sluice.configure(SparkSession.Builder())
    assert started == [None], "the embedded coordinator starts beside Spark"


@pytest.mark.parametrize("text", ["one line", "two\nlines: of it"])
def test_every_error_is_found_behind_sparks_text(text: str) -> None:
    named = [getattr(module, name) for module in (storing, committing) for name in module.__all__]
    classes = [each for each in named if isinstance(each, type)]
    assert len(classes) > 20
    for cls in classes:
        where = f"{cls.__module__}.{cls.__qualname__}"
        error = original(PySparkException(f"[X] failed: Traceback (most recent call last):\n  File 'x'\n{where}: {text}\n SQLSTATE: 38000"))
        assert error is not None
        assert type(error) is cls
        assert error.message == text
    assert original(PySparkException("[X] Traceback (most recent call last):\nValueError: no")) is None
    chained = "Traceback:\nsluice.storage.errors.ObjectNotFound: a\n\nTraceback:\nsluice.storage.errors.MissingObject: b\n SQLSTATE: 1"
    assert type(original(PySparkException(chained))) is sluice.errors.MissingObject


def test_the_stores_options_in_the_words_of_hadoop() -> None:
    given = {"endpoint_url": "http://h:1", "access_key_id": "a", "secret_access_key": "b", "region": "r"}
    assert hadoop_options("s3://b/t", given) == {
        "fs.s3a.endpoint": "http://h:1",
        "fs.s3a.endpoint.region": "r",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "a",
        "fs.s3a.secret.key": "b",
    }
    assert hadoop_options("s3://b/t", {}) == hadoop_options("file:///t", given) == {}


def check_remote(place: Place, location: str, storage_options: Mapping[str, str], options: Mapping[str, str]) -> None:
    """The JVM has no file system for the store: sluice's Python tasks read and write the table."""
    remote = Place(place.spark, location, place.coordinator)
    remote.write(place.spark.sql("SELECT id, id % 2 AS p FROM range(10)"), partitionBy="p", **options)
    remote.write(place.spark.sql("SELECT id, id % 2 AS p FROM range(10, 20)"), **options)
    assert sorted(row["id"] for row in remote.load(**options).where("p = 1").collect()) == list(range(1, 20, 2))
    scanned = remote.scan(storage_options=storage_options, columns=["id"], where="p = 0 OR id = 1")
    assert not is_native(scanned)
    assert sorted(row["id"] for row in scanned.collect()) == sorted([1, *range(0, 20, 2)])


@pytest.mark.spark
def test_a_table_in_azure(place: Place, azure_server: AzureServer, azure_location: str) -> None:
    options = {name.replace("azure_", "azure."): text for name, text in azure_server.options.items()}
    check_remote(place, azure_location, azure_server.options, options)


@pytest.mark.spark
def test_a_table_on_s3(place: Place, s3_server: S3DevServer, s3_location: str) -> None:
    check_remote(place, s3_location, s3_server.options, {f"s3.{name}": text for name, text in s3_server.options.items()})
