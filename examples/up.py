"""`make up`: what `docker compose up` starts, without Docker, until Ctrl-C.

::

    three ZooKeeper servers   from the jars in PySpark
    an S3 server              moto's, which forgets everything at the end
    sluice daemon             looks after the tables
    sluice exporter           shows them to Prometheus
    sluice console            shows them to you
    prometheus                with the alerts of deploy/prometheus, where the program is there
    writers                   append flights of the demo to a table, and delete the cancelled ones

Everything listens on the loopback interface. Each process is ended by its id, and what it wrote is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import click
from prometheus_client import start_http_server

from sluice import Table, metrics
from sluice.coordinator.api import release
from sluice.dev import S3DevServer
from sluice.errors import SluiceError
from tests.chaos.ensemble import Ensemble, die_with_parent, free_ports

from .demo.flights import IS_CANCELLED, PARTITION_BY, PROPERTIES, SCHEMA, read_flights, stream_flights

_ROOT: Final = Path(__file__).resolve().parent.parent
_USUAL: Final = {"exporter": 9464, "daemon": 9465, "console": 9466, "prometheus": 9090}
_END_S: Final = 30.0
_TABLE: Final = "s3://sluice/flights"
_BATCH_ROWS: Final = 20
_DELETE_EVERY: Final = 5
_DAEMON_EVERY_S: Final = 10
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SAMPLE: Final = 20_000


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--free-ports", "is_free", is_flag=True, help="Take free ports instead of the usual ones.")
@click.option("--pause", "pause_s", type=float, default=1.0, show_default=True, help="Seconds between two commits of the writers.")
@click.option("--no-load", "is_quiet", is_flag=True, help="Start no writers.")
def up(*, is_free: bool, pause_s: float, is_quiet: bool) -> None:
    """Start an ensemble, a store, the daemon, the exporter, and programs that write; print where they are, and end all on Ctrl-C."""
    over = threading.Event()
    for number in _ENDING:
        signal.signal(number, signal.default_int_handler)  # one that set the event might wait for a lock that this thread has
    ports = dict(zip(_USUAL, free_ports(len(_USUAL)), strict=True)) if is_free else _USUAL
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="sluice-up-")))
        click.echo("starting three ZooKeeper servers and an S3 server ...", err=True)
        ensemble = Ensemble(folder / "zookeeper")
        running.callback(ensemble.close)
        ensemble.start()
        store = running.enter_context(S3DevServer())
        env = {**store.env, "SLUICE_COORDINATOR": f"zk://{ensemble.hosts}/sluice"}
        os.environ |= env
        urls: dict[str, str] = {}
        for name, options in (("exporter", ["--upkeep"]), ("daemon", ["--interval", str(_DAEMON_EVERY_S)]), ("console", [])):
            urls[name] = running.enter_context(_part(name, ports[name], options, folder))
        if not is_quiet:
            urls["writers"] = running.enter_context(_writers(over, pause_s))
        urls |= running.enter_context(_prometheus(ports["prometheus"], urls, folder))
        _say(env, urls)
        with suppress(KeyboardInterrupt):
            while True:
                ensemble.look()
                time.sleep(1.0)
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        over.set()
        click.echo("ending ...", err=True)
        release()


def _say(env: Mapping[str, str], urls: Mapping[str, str]) -> None:
    for name, value in env.items():
        click.echo(f"export {name}={value}")
    for name, url in urls.items():
        click.echo(f"{name + ':':12}{url}")
    click.echo(f"{'table:':12}{_TABLE}")
    click.echo("# in another shell, after these exports: sluice status --watch        Ctrl-C ends all of it", err=True)
    sys.stdout.flush()


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended with the block, and with the program that started it; Ctrl-C in the terminal reaches only that."""
    with (
        log.open("w") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, preexec_fn=die_with_parent) as process,  # noqa: PLW1509
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def _part(name: str, port: int, options: Sequence[str], folder: Path) -> Iterator[str]:
    """A server of sluice; its address, once it listens."""
    log = folder / f"{name}.log"
    with _process([sys.executable, "-m", "sluice", name, "--port", str(port), "--json", *options], log) as process:
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                break
        if not text:
            raise click.ClickException(f"sluice {name} did not start: {log.read_text()[-500:]}")
        yield str(json.loads(text)["url"])


@contextmanager
def _prometheus(port: int, urls: Mapping[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """Prometheus with this repository's alerts; nothing where the program is not there."""
    program = shutil.which("prometheus", path=os.pathsep.join([str(_ROOT / ".tools" / "bin"), os.environ.get("PATH", "")]))
    if program is None:
        click.echo("# without Prometheus, which is not installed: make deploy-tools", err=True)
        yield {}
        return
    jobs = {"exporter": "sluice-exporter", "daemon": "sluice-daemon", "writers": "sluice-programs"}
    scraped = [{"job_name": job, "static_configs": [{"targets": [urls[name].split("/")[2]]}]} for name, job in jobs.items() if name in urls]
    rules = str(_ROOT / "deploy" / "prometheus" / "alerts.yml")
    # JSON is YAML
    settings = {"global": {"scrape_interval": "10s", "evaluation_interval": "5s"}, "rule_files": [rules], "scrape_configs": scraped}
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/prometheus"]
    with _process([*command, f"--web.listen-address=127.0.0.1:{port}"], folder / "prometheus.log"):
        yield {"prometheus": f"http://127.0.0.1:{port}/alerts"}


@contextmanager
def _writers(over: threading.Event, pause_s: float) -> Iterator[str]:
    """One thread that appends, and one that deletes what is cancelled; their metrics' address."""
    end_metrics = metrics.start()
    server, serving = start_http_server(0, "127.0.0.1")
    Table.create(_TABLE, SCHEMA, partition_by=PARTITION_BY, properties=PROPERTIES).close()
    flights = stream_flights(read_flights(_SAMPLE))
    batches = [flights.slice(start, _BATCH_ROWS) for start in range(0, len(flights), _BATCH_ROWS)]

    def append(table: Table, number: int) -> None:
        table.append(batches[number % len(batches)])

    def delete(table: Table, _number: int) -> None:
        table.delete(IS_CANCELLED)

    threads = [
        threading.Thread(target=_repeat, args=(name, work, over, pause), name=f"up-{name}")
        for name, work, pause in (("stream", append, pause_s), ("cancellations", delete, _DELETE_EVERY * pause_s))
    ]
    for thread in threads:
        thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        over.set()
        for thread in threads:
            thread.join()
        server.shutdown()
        server.server_close()
        serving.join()
        end_metrics()


def _repeat(name: str, work: Callable[[Table, int], None], over: threading.Event, pause_s: float) -> None:
    with Table.open(_TABLE, application=name) as table:
        number = 0
        while not over.wait(pause_s):
            with suppress(SluiceError):  # the metrics and the log say so
                work(table, number)
            number += 1


if __name__ == "__main__":
    up(prog_name="make up")
