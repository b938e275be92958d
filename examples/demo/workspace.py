"""The surroundings of a demo run: a folder, an object store, a coordinator; all cleaned up afterwards."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import uuid
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from rich.console import Console

from sluice.coordinator.api import release
from sluice.dev import S3DevServer
from sluice.errors import InvalidRequest
from sluice.operating.console.application import Console as WebConsole
from sluice.operating.console.application import serve
from sluice.storage.stores.location import normalise, open_store

_SERVERS_END_LIMIT_S = 15.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the demo. `rows` None: all flights; `location` is the table's parent folder."""

    store: str = "local"
    location: str | None = None
    coordinator: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    seed: int = 0
    keep: bool = False
    spark: bool = True
    watch: bool = False
    time_limit_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Workspace:
    """The table's location, its access, a folder for files, and the jobs' environment."""

    location: str
    coordinator: str
    storage_options: Mapping[str, str]
    folder: Path
    env: Mapping[str, str]

    @property
    def beside(self) -> tuple[str, str]:
        """The locations of two more tables, which change together."""
        return f"{self.location}-seats", f"{self.location}-bookings"


@contextmanager
def workspace(options: DemoOptions) -> Iterator[Workspace]:
    """Make a place for one run, and remove it afterwards. Raises InvalidRequest for options that contradict each other.

    The table is below `location` if given, else in a temporary folder, or on an S3 server started for it. Without a
    coordinator in the options or the environment, an embedded one of its own is used.
    """
    own_server = options.store == "s3" and options.location is None and not _endpoint(options)
    _check(options, own_server=own_server)
    with ExitStack() as cleanup:
        folder = Path(tempfile.mkdtemp(prefix="sluice-demo-"))
        if not options.keep:
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        storage_options, env = dict(options.storage_options), dict[str, str]()
        if own_server:
            server = cleanup.enter_context(S3DevServer())
            storage_options, env = server.options, server.env
        home = options.location or ("s3://sluice" if options.store == "s3" else str(folder))
        location = f"{normalise(home)}/flights-{uuid.uuid4().hex[:8]}"
        coordinator = options.coordinator or os.environ.get("SLUICE_COORDINATOR")
        if coordinator is None:
            servers = folder / "zookeeper"
            coordinator = f"embedded://{quote(str(servers))}"
            cleanup.callback(_await_end, servers)
        place = Workspace(location, coordinator, storage_options, folder, env)
        for each in () if options.keep else (location, *place.beside):
            cleanup.callback(_remove_table, each, storage_options)
        cleanup.callback(release, coordinator)
        yield place


@contextmanager
def watched(options: DemoOptions, place: Workspace, console: Console) -> Iterator[None]:
    """In the block, `sluice console` shows the tables, if it was asked for."""
    if not options.watch:
        yield
        return
    port, end = serve(WebConsole.of(place.coordinator, place.storage_options), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}/"
    console.print(f"watch it at {url}", highlight=False, soft_wrap=True)
    if console.is_terminal:
        webbrowser.open(url)
    try:
        yield
    finally:
        end()


def _endpoint(options: DemoOptions) -> str | None:
    return options.storage_options.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _check(options: DemoOptions, *, own_server: bool) -> None:
    if options.location is not None and normalise(options.location).startswith("s3://") != (options.store == "s3"):
        raise InvalidRequest(f"--store {options.store} and --location {options.location} contradict each other")
    if own_server and options.keep:
        raise InvalidRequest("--keep has no use on an S3 server that ends with the demo: run `sluice dev`, and set what it prints")


def _remove_table(location: str, storage_options: Mapping[str, str]) -> None:
    if location.startswith("file://"):
        shutil.rmtree(location.removeprefix("file://"), ignore_errors=True)
        return
    store = open_store(location, storage_options)
    for each in list(store.list_from("", recursive=True)):
        store.delete(each.key)


def _await_end(servers: Path) -> None:
    """Wait until the embedded ZooKeeper in this folder has stopped after its last client left: until then it writes there."""
    deadline = time.monotonic() + _SERVERS_END_LIMIT_S
    lock = servers / "server.lock"
    while lock.exists() and time.monotonic() < deadline:
        with lock.open("rb") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(_POLL_S)
