"""What the servers of an embedded ensemble are started with: ports, configuration files, command lines."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Collection, Sequence
from pathlib import Path

from .java import find_jars, find_java

__all__ = ["choose_ports", "ports_are_free", "prepare"]

PORTS_PER_SERVER = 3
"""One for clients, one for the data between the servers, one for their elections."""

_ZOO_CFG = """\
dataDir={data}
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
appender.file.fileName={log}
appender.file.filePattern={log}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{{1}}: %m%n%ex
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
    <file>{log}</file>
    <encoder><pattern>%d %p %c{{1}}: %m%n%ex</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""

_JVM = (
    "-Xmx512m",
    # Ready in half the time, and with a third of the memory, of the defaults for large servers.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disableJmx=true",
    "-Dzookeeper.preAllocSize=1024",
)


def choose_ports(servers: int) -> list[int]:
    """Free ports on the loopback interface, PORTS_PER_SERVER for each server; they may be taken before they are used."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(_listener(0)) for _ in range(servers * PORTS_PER_SERVER)]
        return [int(listener.getsockname()[1]) for listener in listeners]


def ports_are_free(ports: Collection[int]) -> bool:
    """Whether all of them could be listened on just now."""
    try:
        for port in ports:
            _listener(port).close()
    except OSError:
        return False
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


def prepare(directory: Path, *, servers: int, ports: Sequence[int], jars: str | None) -> None:
    """Write the configuration of every server, and `plan.json`, from which the supervisor starts them.

    Raises InvalidRequest when there is no Java or there are no jars.
    """
    java = find_java()
    classpath = os.pathsep.join(str(jar) for jar in find_jars(jars))
    groups = [ports[start : start + PORTS_PER_SERVER] for start in range(0, servers * PORTS_PER_SERVER, PORTS_PER_SERVER)]
    members = "".join(f"server.{number}=127.0.0.1:{data}:{election}\n" for number, (_, data, election) in enumerate(groups, 1))
    plans = []
    for number, (client_port, _, _) in enumerate(groups, 1):
        folder = directory / f"server-{number}"
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{number}\n")
        config = folder / "zoo.cfg"
        config.write_text(_ZOO_CFG.format(data=data, client_port=client_port) + (members if servers > 1 else ""))
        (folder / "log4j2.properties").write_text(_LOG4J2.format(log=folder / "server.log"))
        (folder / "logback.xml").write_text(_LOGBACK.format(log=folder / "server.log"))
        command = [java, *_JVM]
        command += [f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}", f"-Dlogback.configurationFile={folder / 'logback.xml'}"]
        command += ["-cp", classpath, _main_class(servers), str(config)]
        plans.append({"command": command, "output": str(folder / "server.out"), "client_port": client_port})
    hosts = ",".join(f"127.0.0.1:{client_port}" for client_port, _, _ in groups)
    (directory / "plan.json").write_text(json.dumps({"servers": plans, "hosts": hosts, "ports": list(ports)}, indent=1))


def _main_class(servers: int) -> str:
    package = "org.apache.zookeeper.server"
    return f"{package}.ZooKeeperServerMain" if servers == 1 else f"{package}.quorum.QuorumPeerMain"
