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
    "format of quotas": formats.QUOTAS_FORMAT,
    "format of verdict records": formats.BATCH_FORMAT,
    "format of names": formats.CATALOG_FORMAT,
    "format of positions of consumers": formats.CONSUMER_FORMAT,
    "rendering": formats.RENDERING,
}


def project() -> str:
    return (ROOT / "pyproject.toml").read_text()


def lower_bounds() -> dict[str, str]:
    """The bound of each package that sluice or an extra for users needs: the extras from `demo` on are for demos, tests and benchmarks."""
    for_users = project().partition("\ndependencies = ")[2].partition("\ndemo = ")[0]
    return dict(re.findall(r'"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)"', for_users))


def test_programs_have_the_lower_bounds_of_the_project() -> None:
    table = rows(section("versions.md", "Programs"))
    packages = {cells[0]: cells[1] for cells in table if cells[0].startswith("`")}
    others = {cells[0]: cells[1] for cells in table if cells[0] not in packages}
    pairs = [zip(each.split(", "), lowest.split(", "), strict=True) for each, lowest in packages.items()]
    assert {name.strip("`"): lowest for each in pairs for name, lowest in each} == lower_bounds()
    [python] = re.findall(r'^requires-python = ">=([\d.]+)"', project(), re.MULTILINE)
    assert (others["Python"], others["Java"]) == (python, str(MINIMUM_VERSION))
    assert others.keys() == {"Python", "Java", "ZooKeeper"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_each_python_of_the_classifiers_is_supported() -> None:
    import tomllib

    facts: dict[str, Any] = tomllib.loads(project())["project"]
    named = [each.rpartition(" ")[2] for each in facts["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert named[0] == facts["requires-python"].removeprefix(">=")


def test_formats_and_protocol_versions_are_those_of_the_code() -> None:
    on_the_page = {cells[0]: cells[1] for cells in rows(section("versions.md", "Formats of sluice"))}
    assert on_the_page == {name: str(number) for name, number in NUMBERS.items()}
    delta = {cells[0]: cells[1] for cells in rows(section("versions.md", "Delta Lake"))}
    assert delta["reader version"].endswith(str(FEATURE_READER_VERSION))
    assert delta["writer version"].endswith(str(FEATURE_WRITER_VERSION))


def test_the_numbers_are_all_of_the_code() -> None:
    constants = {name for name in vars(formats) if re.fullmatch(r"[A-Z]+_FORMAT|NODE_PROTOCOL|RENDERING", name)}
    assert len(constants) == len(NUMBERS)
