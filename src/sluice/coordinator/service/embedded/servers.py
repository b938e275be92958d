"""The configuration of an embedded ensemble's servers: ports, files, command lines."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from .java import find_jars, find_java
from .supervisor import FORMAT

_POLL_S = 0.03

PORTS_PER_SERVER = 3
"""One for clients, one for data between the servers, one for elections."""

_OUTGOING_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_IANA_FIRST_DYNAMIC_PORT: Final = 49152
_FIRST_PORT: Final = 20_000
_TRIES: Final = 100

LINGER_S = 2.0
"""How long unused servers stay, in seconds, so that the next program finds them running."""

# Java reads these files as Latin-1 and needs the right locale for other file names, so they contain none of our paths: a
# server runs in its own folder.

_ZOO_CFG = """\
dataDir=./data
clientPort={client_port}
clientPortAddress=127.0.0.1
# Sessions of 1 to 60 seconds are allowed, whatever the tick.
tickTime=1000
minSessionTimeout=1000
maxSessionTimeout=60000
initLimit=20
syncLimit=10
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


def choose_ports(servers: int) -> list[int]:
    """Free ports on the loopback interface, PORTS_PER_SERVER for each server; others may take them before they are used.

    They are below those that the system gives to outgoing connections: while a server restarts, such a connection could take its
    port, even one of the clients that try to reach the server.
    """
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(_free_listener()) for _ in range(servers * PORTS_PER_SERVER)]
        return [int(listener.getsockname()[1]) for listener in listeners]


def _free_listener() -> socket.socket:
    for port in random.sample(range(_FIRST_PORT, _first_outgoing_port()), _TRIES):
        with contextlib.suppress(OSError):  # somebody uses it
            listener = _listener(port)
            listener.listen()  # the next one cannot have the same port
            return listener
    return _listener(0)


def _first_outgoing_port() -> int:
    """Where the range of ports for outgoing connections begins; IANA's where the system does not say, or leaves no room below."""
    try:
        first = int(_OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _IANA_FIRST_DYNAMIC_PORT
    return first if first >= _FIRST_PORT + _TRIES else _IANA_FIRST_DYNAMIC_PORT


def ports_are_free(ports: Collection[int], *, patience_s: float = 0.0) -> bool:
    """Whether all of them can be bound, now or within the patience: a dying process releases its ports last."""
    end = time.monotonic() + patience_s
    while True:
        try:
            for port in ports:
                _listener(port).close()
        except OSError:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
    except BaseException:
        listener.close()
        raise
    return listener


def mark_of(directory: Path) -> str:
    """A text in the command line of every server of this directory, and of no other process."""
    return f"-Dsluice.embedded={directory}{os.sep}"


def prepare(directory: Path, *, servers: int, ports: Sequence[int], jars: str | None) -> None:
    """Write the configuration of every server, and `plan.json`, from which the supervisor starts them.

    Raises InvalidRequest if Java or the jars are missing.
    """
    java = find_java()
    classpath = os.pathsep.join(str(jar) for jar in find_jars(jars))
    command = [java, *_JVM, mark_of(directory), "-cp", classpath, _main_class(servers), "./zoo.cfg"]
    groups = [ports[start : start + PORTS_PER_SERVER] for start in range(0, servers * PORTS_PER_SERVER, PORTS_PER_SERVER)]
    members = "".join(f"server.{number}=127.0.0.1:{data}:{election}\n" for number, (_, data, election) in enumerate(groups, 1))
    plans = []
    for number, (client_port, _, _) in enumerate(groups, 1):
        folder = directory / f"server-{number}"
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data" / "myid").write_text(f"{number}\n")
        (folder / "zoo.cfg").write_text(_ZOO_CFG.format(client_port=client_port) + (members if servers > 1 else ""))
        (folder / "log4j2.properties").write_text(_LOG4J2)
        (folder / "logback.xml").write_text(_LOGBACK)
        plans.append({"command": command, "folder": str(folder), "client_port": client_port})
    hosts = ",".join(f"127.0.0.1:{client_port}" for client_port, _, _ in groups)
    plan = {"format": FORMAT, "servers": plans, "hosts": hosts, "ports": list(ports), "linger_s": LINGER_S}
    fresh = directory / "plan.json.new"
    fresh.write_text(json.dumps(plan, indent=1))
    fresh.replace(directory / "plan.json")


def _main_class(servers: int) -> str:
    package = "org.apache.zookeeper.server"
    return f"{package}.ZooKeeperServerMain" if servers == 1 else f"{package}.quorum.QuorumPeerMain"
