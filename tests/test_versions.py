"""docs/versions.md says what pyproject.toml and the formats say."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from sluice.coordinator import formats
from sluice.coordinator.service.embedded.server import MINIMUM_VERSION
from sluice.storage.actions.features import FEATURE_READER_VERSION, FEATURE_WRITER_VERSION
from tests.test_docs_tables import ROOT, rows, section

NUMBERS = {
    "node protocol": formats.NODE_PROTOCOL,
    "format of the head": formats.HEAD_FORMAT,
    "format of `published`": formats.PUBLISHED_FORMAT,
    "format of intents": formats.INTENT_FORMAT,
    "format of rows of contention": formats.CONTENTION_FORMAT,
    "format of verdict records": formats.BATCH_FORMAT,
    "format of names": formats.CATALOG_FORMAT,
    "format of positions of consumers": formats.CONSUMER_FORMAT,
    "rendering": formats.RENDERING,
}


def project() -> str:
    return (ROOT / "pyproject.toml").read_text()


def lower_bounds() -> dict[str, str]:
    """The first bound of each package that is asked for outside the tests."""
    return dict(re.findall(r'"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)"', project()))


def test_programs_have_the_lower_bounds_of_the_project() -> None:
    told = {cells[0].strip("`"): cells[1] for cells in rows(section("versions.md", "Programs"))}
    bounds = lower_bounds()
    packages = {name: lowest for name, lowest in told.items() if name in bounds}
    assert packages == {name: bounds[name] for name in packages}
    assert {"pyarrow", "boto3", "kazoo", "pyspark", "duckdb", "obstore", "prometheus-client", "pure-sasl"} <= packages.keys()
    [python] = re.findall(r'^requires-python = ">=([\d.]+)"', project(), re.MULTILINE)
    assert (told["Python"], told["Java"]) == (python, str(MINIMUM_VERSION))
    assert told.keys() - packages.keys() == {"Python", "Java", "ZooKeeper"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_each_python_of_the_classifiers_is_supported() -> None:
    import tomllib

    facts: dict[str, Any] = tomllib.loads(project())["project"]
    named = [each.rpartition(" ")[2] for each in facts["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert named[0] == facts["requires-python"].removeprefix(">=")


def test_formats_and_protocol_versions_are_those_of_the_code() -> None:
    told = {cells[0]: cells[1] for cells in rows(section("versions.md", "Formats of sluice"))}
    assert told == {name: str(number) for name, number in NUMBERS.items()}
    delta = {cells[0]: cells[1] for cells in rows(section("versions.md", "Delta Lake"))}
    assert delta["reader version"].endswith(str(FEATURE_READER_VERSION))
    assert delta["writer version"].endswith(str(FEATURE_WRITER_VERSION))


def test_the_numbers_are_all_of_the_code() -> None:
    constants = {name for name in vars(formats) if re.fullmatch(r"[A-Z]+_FORMAT|NODE_PROTOCOL|RENDERING", name)}
    assert len(constants) == len(NUMBERS)
