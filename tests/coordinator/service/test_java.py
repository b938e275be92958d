"""Finding Java and ZooKeeper's jars, and what is said when they are not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sluice.coordinator.service.embedded.server import find_jars, find_java, parse_version
from sluice.storage.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_301"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="1"\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def fake_java(folder: Path, says: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


def test_java_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/bin:/usr/bin")
    assert find_java() == str(program)


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    at_home = fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
    monkeypatch.setenv("PATH", f"{on_path.parent}{os.pathsep}/bin:/usr/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == str(at_home)


def test_no_java_says_what_to_install_and_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"needs Java.*PATH \(.*install a Java runtime of version 17") as missing:
        find_java()
    assert str(tmp_path) in str(missing.value)


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"JAVA_HOME is .*bin/java.*install a Java runtime"):
        find_java()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho 'java version \"1.8.0_301\"' >&2\n", "is Java 8, the embedded ZooKeeper needs 17"),
        ("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", "is Java 11, .*install"),
        ("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n", "does not show a version, it says .Unable to locate.*install"),
        ("#!/does/not/exist\n", "does not run"),
    ],
)
def test_a_java_that_will_not_do_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    program = fake_java(tmp_path, "")
    program.write_text(script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidRequest, match=message) as refused:
        find_java()
    assert str(program) in str(refused.value)


JARS = ("zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar", "slf4j-api-2.0.17.jar", "metrics-core-4.2.37.jar", "snappy-java-1.1.10.8.jar")


def jar_folder(folder: Path, names: tuple[str, ...] = JARS) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_only_the_jars_that_are_needed_are_taken(tmp_path: Path) -> None:
    folder = jar_folder(tmp_path / "jars", (*JARS, "log4j-core-2.25.jar", "spark-core_2.13-4.0.0.jar", "netty-all-4.2.jar"))
    assert [jar.name for jar in find_jars(str(folder))] == [*JARS, "log4j-core-2.25.jar"]


def test_a_distribution_is_as_good_as_its_lib(tmp_path: Path) -> None:
    lib = jar_folder(tmp_path / "apache-zookeeper" / "lib")
    assert find_jars(str(lib.parent))[0] == lib / JARS[0]


def test_the_environment_names_a_folder_and_the_address_comes_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = jar_folder(tmp_path / "one"), jar_folder(tmp_path / "other")
    monkeypatch.setenv("SLUICE_ZOOKEEPER_JARS", str(one))
    assert find_jars()[0].parent == one
    assert find_jars(str(other))[0].parent == other


def test_a_folder_without_a_needed_jar_is_refused(tmp_path: Path) -> None:
    folder = jar_folder(tmp_path / "jars", JARS[:3])
    with pytest.raises(InvalidRequest, match=r"no metrics-core-\*\.jar in .*SLUICE_ZOOKEEPER_JARS"):
        find_jars(str(folder))


def test_pyspark_brings_them() -> None:
    assert find_jars()[0].parent.parent.name == "pyspark"


def test_spark_home_brings_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pyspark(monkeypatch)
    jars = jar_folder(tmp_path / "jars")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert find_jars()[0].parent == jars


def test_without_pyspark_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pyspark(monkeypatch)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(InvalidRequest, match=r"needs PySpark's jars or a path to ZooKeeper's.*pip install '.*\[spark\]'"):
        find_jars()


def without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.coordinator.service.embedded.server.importlib.util.find_spec", lambda _: None)
