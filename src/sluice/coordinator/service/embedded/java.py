"""Finds what an embedded ZooKeeper needs: a Java runtime, and the jars of the server."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from ....installation import install_command
from ....storage.errors import InvalidRequest

MINIMUM_VERSION = 17
"""Required by PySpark; ZooKeeper needs less."""

_NEEDED = ("zookeeper-[0-9]*.jar", "zookeeper-jute-*.jar", "slf4j-api-*.jar", "metrics-core-*.jar", "snappy-java-*.jar")
_LOGGING = ("log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j*-impl-*.jar", "logback-classic-*.jar", "logback-core-*.jar")

_INSTALL = (
    f"install a Java runtime of version {MINIMUM_VERSION} or later (Debian/Ubuntu: apt install openjdk-17-jre-headless, "
    "macOS: brew install openjdk@17), set JAVA_HOME to one, or name a running ZooKeeper with coordinator='zk://host:2181'"
)


def find_java() -> str:
    """The path of the `java` program: from JAVA_HOME if it is set, else from PATH.

    Raises InvalidRequest, naming where it looked and what to install, if there is none or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        program = str(Path(home) / "bin" / "java")
        if not os.access(program, os.X_OK):
            raise InvalidRequest(f"JAVA_HOME is {home!r}, but it has no program {program}: {_INSTALL}", looked_at=program)
    else:
        found = shutil.which("java")
        if found is None:
            path = os.environ.get("PATH", "")
            message = f"the embedded ZooKeeper needs Java, but JAVA_HOME is not set and no java is on PATH ({path}): {_INSTALL}"
            raise InvalidRequest(message, looked_at=path)
        program = found
    version = _version_of(program)
    if version < MINIMUM_VERSION:
        raise InvalidRequest(f"{program} is Java {version}, the embedded ZooKeeper needs {MINIMUM_VERSION}: {_INSTALL}", version=version)
    return program


@functools.lru_cache
def _version_of(program: str) -> int:
    try:
        ran = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidRequest(f"{program} -version does not run ({error}): {_INSTALL}", looked_at=program) from error
    version = parse_version(ran.stderr + ran.stdout)
    if version is None:
        said = (ran.stderr + ran.stdout).strip()[:200]
        raise InvalidRequest(f"{program} -version does not show a version, it says {said!r}: {_INSTALL}", looked_at=program)
    return version


def parse_version(text: str) -> int | None:
    """The feature version in what `java -version` prints: 8 for "1.8.0_301", 17 for "17.0.15", 25 for "25-ea"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def find_jars(given: str | None = None) -> list[Path]:
    """The jars to start ZooKeeper from, few so that it starts fast.

    They are taken from the folder `given`, else from SLUICE_ZOOKEEPER_JARS, else from PySpark's own jars. The folder may be
    the `lib` of a ZooKeeper distribution or its home. Raises InvalidRequest if the folder or a needed jar does not exist.
    """
    given = given or os.environ.get("SLUICE_ZOOKEEPER_JARS")
    folder = Path(given).expanduser() if given else _pyspark_jars()
    if folder is None:
        raise InvalidRequest(
            f"the embedded ZooKeeper needs PySpark's jars or a path to ZooKeeper's: {install_command('spark')}, set "
            "SLUICE_ZOOKEEPER_JARS to the folder of a ZooKeeper distribution, or name a running ZooKeeper with "
            "coordinator='zk://host:2181'"
        )
    if any((folder / "lib").glob("zookeeper-*.jar")):
        folder = folder / "lib"
    jars: list[Path] = []
    for pattern in _NEEDED:
        found = sorted(folder.glob(pattern))
        if not found:
            raise InvalidRequest(
                f"there is no {pattern} in {folder}, so ZooKeeper cannot be started from there: point SLUICE_ZOOKEEPER_JARS (or "
                "?jars= of the coordinator's address) to the folder of a ZooKeeper distribution or to PySpark's jars",
                folder=str(folder),
                missing=pattern,
            )
        jars += found
    return jars + [jar for pattern in _LOGGING for jar in sorted(folder.glob(pattern))]


def _pyspark_jars() -> Path | None:
    spark_home = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")  # this does not import it
    folders = [Path(place) / "jars" for place in (spec.submodule_search_locations or ()) if spec] if spec else []
    if spark_home:
        folders.append(Path(spark_home) / "jars")
    return next((folder for folder in folders if any(folder.glob("zookeeper-*.jar"))), None)
