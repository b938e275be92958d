"""The catalogue of checks cannot rot: each can be switched off in the source, and something is said to notice."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.explore.worlds import WORLDS
from tests.marked import marked

from .catalogue import CHECKS, HELD
from .checks import points_below, switched_off
from .evidence import Evidence, by_seeds, by_tests, ran
from .tree import ROOT, Copy, copy_of


@pytest.mark.costly
@pytest.mark.slow
def test_every_check_can_be_switched_off() -> None:
    """A tree that does not even compile without it would prove nothing."""
    modules = points_below(ROOT / "src")
    assert {name for points in modules.values() for name in points.names} == CHECKS.keys()
    for name in CHECKS:
        for path, content in switched_off(name, modules).items():
            assert content != path.read_text(), name
            ast.parse(content, str(path))


@pytest.mark.costly
def test_something_notices_each_check() -> None:
    tests = marked("notices")
    assert tests.keys() <= CHECKS.keys()
    for check in CHECKS.values():
        noticed = bool(tests.get(check.name) or check.world or check.seeds)
        assert noticed != bool(check.accepted), f"{check.name} is noticed, or it is accepted that nobody does"


def test_the_catalogue_is_whole() -> None:
    assert len(CHECKS) > 200
    assert list(Counter(check.holds for check in CHECKS.values())) == list(HELD)
    assert {check.world for check in CHECKS.values()} - {""} <= WORLDS.keys()


# -- the machinery -------------------------------------------------------------------------------------------------------

_CHECK = """def allowed(age: int) -> bool:
    # check: age
    if age < 18:
        return False
    return True
"""
_TEST = """import pytest
from sluice.check import allowed

@pytest.mark.notices("age")
@pytest.mark.parametrize("age", [17, 19])
def test_allowed(age) -> None:
    assert allowed(age) == (age > 18)
"""
_OPTION = """def pytest_addoption(parser):
    parser.addoption("--notices")
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small tree with one check and one test of it."""
    files = {"src/sluice/__init__.py": "", "src/sluice/check.py": _CHECK, "tests/test_check.py": _TEST, "tests/conftest.py": _OPTION}
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content)
    return tmp_path


@pytest.mark.costly
@pytest.mark.slow
def test_a_check_is_switched_off_and_on_again_and_a_test_notices(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    copy = copy_of(repository, tmp_path_factory.mktemp("copy"))
    source = copy.root / "src/sluice/check.py"
    assert marked("notices", copy.root) == {"age": ["tests/test_check.py::test_allowed"]}
    evidence = by_tests(marked("notices", copy.root)["age"], ["age"], to_the_end=False)
    assert ran(evidence, copy).noticed_by == ()
    with copy.without("age"):
        assert "if False:" in source.read_text()
        assert ran(evidence, copy).noticed_by == ("tests/test_check.py::test_allowed[17]",)
    assert source.read_text() == _CHECK == (repository / "src/sluice/check.py").read_text()
    assert ran(evidence, copy).noticed_by == ()
    with pytest.raises(RuntimeError, match="ended with 4"):
        ran(by_tests(["tests/test_check.py::test_adults"], ["age"], to_the_end=False), copy)
    source.write_text(_CHECK.replace("age:", "age"))
    with pytest.raises(RuntimeError, match="ended with"):
        ran(evidence, copy)


def test_what_does_not_end_is_noticed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    endless = Evidence("simulator", (sys.executable, "-c", "while True: pass"), ("0..1",), limit_s=0.5)
    finding = ran(endless, Copy(repository))
    assert finding.noticed_by == ("0..1",)
    assert "did not end" in finding.said


def test_seeds_are_a_range() -> None:
    assert by_seeds("3..9").command[-6:-2] == ("3", "--seeds", "7", "--stop-after")
