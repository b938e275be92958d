"""What every test has: its own environment, and the promise that nothing is left running."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from sluice.coordinator.service.connect import close_all
from tests import processes
from tests.fixtures import spark_start
from tests.scheduling import FewJvms, bounds_of, kind_of
from tests.selection import left_for_long, share_of

ROOT = Path(__file__).resolve().parent.parent
MEMORY = Path("/dev/shm")


def _use_memory() -> None:
    """Put temporary files into memory where there is enough of it, unless TMPDIR names a place. Each commit waits several times until a
    file is on the disk (fsync), and ZooKeeper does for each change: without a disk the tests of tables take two thirds of the time.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize > 4 << 30 and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


_use_memory()
HOME = Path(tempfile.mkdtemp(prefix="sluice-tests-"))

# No deadline: how long an example takes says how busy the machine is.
settings.register_profile("fast", max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("standard", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("standard")  # unless --hypothesis-profile names another one

pytest_plugins = [
    *("tests.fixtures.run_report", "tests.fixtures.zookeeper", "tests.fixtures.s3", "tests.fixtures.azure", "tests.fixtures.spark_jvm"),
    "tests.fixtures.one_meaning",
]


def _isolate(environment: dict[str, str] | os._Environ[str]) -> None:
    """Take the user's settings out of the environment that the tests, and whatever they start, will see."""
    for name in [name for name in environment if name.startswith(("AWS_", "SLUICE_", "SPARK_", "PYSPARK_"))]:
        del environment[name]
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the tests start hundreds of processes, and none should compile all of sluice
    environment.update(
        {
            processes.MARK: uuid.uuid4().hex,
            "SLUICE_TRACEBACKS": "full",  # a test that fails shows where
            "SLUICE_HOME": str(HOME / "home"),
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **spark_start.environment(),
            # Processes that a test starts find sluice, and the tests' own modules, wherever they run.
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
    )


_isolate(os.environ)
sys.dont_write_bytecode = False  # each worker imports all tests, and to rewrite their assertions takes longer than all else of it


STARTS = {
    "spark": "spark",
    "spark_jvm": "spark",
    "zookeeper_hosts": "zookeeper",
    "s3_server": "s3",
    "s3_server_ignoring": "s3",
    "s3_server_refusing": "s3",
    "azure_server": "clouds",
}
"""The fixtures that start a server, and the markers of the tests that ask for them."""


def _import_share(config: pytest.Config) -> None:
    """Import some of the tests first, each worker others: in a fresh clone together they rewrite each module's assertions once."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    modules = sorted(path for folder in config.args for path in Path(folder).rglob("test_*.py"))
    for path in modules[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and reports the error
            import_module(".".join(path.resolve().relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep the million objects of the collection, none of which ends before the run does, out of every search for garbage."""
    gc.disable()
    _import_share(session.config)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what the options ask for; mark what is long, and what starts a server; sort by kind for `scheduling`.

    Of each kind the tests with S3 come first, so that few workers start its servers, then those that take long. Before them come the many
    small tests that share answers of Spark: none is left for a worker that has not asked.
    """
    names = set(filter(None, str(config.getoption("--notices")).split(",")))
    if names:
        items[:] = [item for item in items if any(names.intersection(mark.args) for mark in item.iter_markers("notices"))]
    else:
        for item in left_for_long(items, costly=not config.getoption("--long-share")):
            item.add_marker("long")
    if share := str(config.getoption("--long-share")):
        is_in = share_of(share)
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long") and not is_in(item)])
        items[:] = [item for item in items if not item.get_closest_marker("long") or is_in(item)]
    for item in items:
        for marker in {STARTS[name] for name in getattr(item, "fixturenames", ()) if name in STARTS}:
            item.add_marker(marker)
    items.sort(
        key=lambda item: (
            kind_of(item),
            "spark_rows" not in getattr(item, "fixturenames", ()),
            *(item.get_closest_marker(marker) is None for marker in ("s3", "slow")),
        )
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write where each kind of tests begins. All workers of pytest-xdist collect the same tests, so all write the same."""
    if "bounds" in (given := getattr(session.config, "workerinput", {})):
        Path(given["bounds"]).write_text(bounds_of(session.items))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a new worker where to write that."""
    node.workerinput["bounds"] = str(HOME / "bounds")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewJvms | None:
    """Our own in the place of `--dist worksteal`."""
    return FewJvms(config, log, HOME / "bounds") if config.getoption("dist") == "worksteal" else None


@pytest.fixture(scope="module", autouse=True)
def no_session_is_kept() -> Iterator[None]:
    """Sessions with coordinators that go with a test's module would try to reach them for ever."""
    yield
    close_all()


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """Set up before every other fixture, so torn down after all of them: whatever still runs then was forgotten."""
    yield
    processes.end_spark_gateway()
    left = processes.wait_for_end(os.environ[processes.MARK], patience_s=60.0)
    for process in left:
        process.kill()
    assert not left, "processes that the tests started and did not end: " + "; ".join(process.command for process in left)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--notices`, by which `make mutate` chooses tests; `--long-share`, by which continuous integration does."""
    parser.addoption("--notices", default="", help="only tests marked as noticing that one of these checks is missing (docs/mutations.md)")
    parser.addoption("--long-share", default="", help="also a part of the long tests, such as 3/16 (tests/selection.py)")


def pytest_configure(config: pytest.Config) -> None:
    """Do not leave out all long tests where a share of them is asked for."""
    if config.getoption("--long-share"):
        config.option.markexpr = config.option.markexpr.replace("not long and ", "")


def pytest_unconfigure() -> None:
    """Also the process that only directs the workers has made itself a home."""
    shutil.rmtree(HOME, ignore_errors=True)
