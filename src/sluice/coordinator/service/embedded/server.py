"""The embedded server's port, settings and command line."""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path
from typing import Final

from .java import find_jars, find_java

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

    A dying process releases its port last, so the former one is waited for.
    """
    deadline = time.monotonic() + _PORT_PATIENCE_S
    while former is not None and time.monotonic() < deadline:
        if _is_free(former):
            return former
        time.sleep(_POLL_S)
    return _free_port()


def _free_port() -> int:
    """A free port on the loopback interface.

    It is below those that the system gives to outgoing connections: while the server restarts, such a connection could take its
    port, even one of the clients that try to reach the server.
    """
    for port in random.sample(range(_FIRST_PORT, _first_outgoing_port()), _TRIES):
        if _is_free(port):
            return port
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _first_outgoing_port() -> int:
    """Where the range of ports for outgoing connections begins; IANA's where the system does not say, or leaves no room below."""
    try:
        first = int(_OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _IANA_FIRST_DYNAMIC_PORT
    return first if first >= _FIRST_PORT + _TRIES else _IANA_FIRST_DYNAMIC_PORT


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
        return True
