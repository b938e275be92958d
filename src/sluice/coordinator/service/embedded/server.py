"""What an embedded ZooKeeper server runs with: a Java runtime, the server's jars, its port, settings and command line."""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

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

_POLL_S: Final = 0.03
_PORT_PATIENCE_S: Final = 1.0
_OUTGOING_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_IANA_FIRST_DYNAMIC_PORT: Final = 49152
_FIRST_PORT: Final = 20_000
_TRIES: Final = 100

# Java reads these files as Latin-1 and needs the right locale for other file names, so they contain none of our paths: the
# server runs in its directory.

_ZOO_CFG = """\
dataDir=./data
clientPort={port}
clientPortAddress=127.0.0.1
# Sessions of 1 to 60 seconds are allowed, whatever the tick.
tickTime=1000
minSessionTimeout=1000
maxSessionTimeout=60000
# All executors and jobs of a user come from one address.
maxClientCnxns=0
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
"""

_LOG4J2 = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName=server.log
appender.file.filePattern=server.log.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{1}: %m%n%ex
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=4MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
"""

_LOGBACK = """\
<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>server.log</file>
    <encoder><pattern>%d %p %c{1}: %m%n%ex</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""

_JVM = (
    "-Xmx512m",
    # Starts in half the time and with a third of the memory of the defaults, which are for large servers.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disableJmx=true",
    "-Dlog4j2.configurationFile=./log4j2.properties",
    "-Dlogback.configurationFile=./logback.xml",
    # The log grows in steps of 1 MiB instead of 64.
    "-Dzookeeper.preAllocSize=1024",
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
    if given:
        folder: Path | None = Path(given).expanduser()
    else:
        spec = importlib.util.find_spec("pyspark")  # this does not import it
        homes = [*((spec and spec.submodule_search_locations) or ()), *filter(None, [os.environ.get("SPARK_HOME")])]
        folder = next((Path(home, "jars") for home in homes if any(Path(home, "jars").glob("zookeeper-*.jar"))), None)
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


def configure(directory: Path, port: int) -> None:
    """Write the server's settings into its directory, in which it runs."""
    (directory / "data").mkdir(exist_ok=True)
    (directory / "zoo.cfg").write_text(_ZOO_CFG.format(port=port))
    (directory / "log4j2.properties").write_text(_LOG4J2)
    (directory / "logback.xml").write_text(_LOGBACK)


def server_command(directory: Path, jars: str | None = None) -> list[str]:
    """The command line of the directory's server. `jars`: see `find_jars`. Raises InvalidRequest if Java or the jars are missing."""
    classpath = os.pathsep.join(map(str, find_jars(jars)))
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    return [find_java(), *_JVM, mark_of(directory), "-cp", classpath, main, "./zoo.cfg"]


def mark_of(directory: Path) -> str:
    """A text in the command line of the directory's server, and of no other process."""
    return f"-Dsluice.embedded={directory}{os.sep}"


def choose_port(former: int | None = None) -> int:
    """The `former` port if it is free, so that clients' sessions go on; else another one. Others may take it before it is used.

    A dying process releases its port last, so the former one is waited for. Another one is below those that the system gives to
    outgoing connections: while the server restarts, such a connection could take its port, even one of the clients that try to
    reach the server.
    """
    deadline = time.monotonic() + _PORT_PATIENCE_S
    while former is not None and time.monotonic() < deadline:
        if _is_free(former):
            return former
        time.sleep(_POLL_S)
    try:
        first_outgoing = int(_OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first_outgoing = _IANA_FIRST_DYNAMIC_PORT
    if first_outgoing < _FIRST_PORT + _TRIES:  # leaves no room below
        first_outgoing = _IANA_FIRST_DYNAMIC_PORT
    for port in random.sample(range(_FIRST_PORT, first_outgoing), _TRIES):
        if _is_free(port):
            return port
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
        return True
