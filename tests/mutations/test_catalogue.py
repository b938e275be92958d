"""The catalogue of mutations cannot rot: every one still applies, what should notice is there, the page tells all of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.explore.worlds import WORLDS

from .catalogue import MUTATIONS, table
from .evidence import Evidence, by_seeds, by_tests, ran
from .mutation import Edit, Mutation
from .tree import ROOT, Copy, copy_of

_NAME = re.compile(r"[a-z]+(-[a-z]+)*")
_INVARIANTS = {f"I{n}" for n in range(1, 13)}
_OTHERS = {"lease", "liveness", "order", "reads", "serial", "work"}


def name(mutation: Mutation) -> str:
    return mutation.name


@cache
def functions(file: str) -> frozenset[str]:
    return frozenset(node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=name)
def test_it_applies(mutation: Mutation) -> None:
    """The texts stand once, and what comes of it is Python: a tree that does not even import proves nothing."""
    contents = {each.file: (ROOT / each.file).read_text() for each in mutation.edits}
    before = dict(contents)
    for each in mutation.edits:
        contents[each.file] = each.applied(contents[each.file])
    assert contents != before
    for file, content in contents.items():
        compile(content, file, "exec")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=name)
def test_what_should_notice_is_there(mutation: Mutation) -> None:
    for each in mutation.tests:
        file, _, test = each.partition("::")
        assert test.partition("[")[0] in functions(file), f"{each} is not there"
    assert set(mutation.worlds) <= WORLDS.keys()
    assert bool(mutation.tests or mutation.seeds or mutation.worlds) != bool(mutation.accepted), (
        "it is noticed, or it is accepted that nobody does"
    )


def test_names_and_invariants() -> None:
    names = [each.name for each in MUTATIONS]
    assert len(names) == len(set(names)) >= 100
    assert [each for each in names if not _NAME.fullmatch(each)] == []
    assert {each.breaks for each in MUTATIONS} == _INVARIANTS | _OTHERS


def test_the_page_tells_all_of_them() -> None:
    written = [line for line in (ROOT / "docs" / "mutations.md").read_text().splitlines() if line.startswith("|")]
    told = "\n".join(written[: len(MUTATIONS) + 2])
    assert told == table(), "`python -m tests.mutations --table` prints it"


# -- the machinery -------------------------------------------------------------------------------------------------------

_CHECK = "def allowed(age: int) -> bool:\n    return age >= 18\n"
_TEST = "from sluice.check import allowed\n\ndef test_children() -> None:\n    assert not allowed(17)\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small tree with one check and one test of it."""
    files = {"src/sluice/__init__.py": "", "src/sluice/check.py": _CHECK, "tests/test_check.py": _TEST}
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content)
    return tmp_path


def test_a_text_that_is_not_there_once_is_no_mutation() -> None:
    with pytest.raises(ValueError, match="holds 0 times"):
        Edit("a.py", "age > 18", "True").applied(_CHECK)
    with pytest.raises(ValueError, match="holds 2 times"):
        Edit("a.py", "age", "years").applied(_CHECK)


def test_a_check_is_taken_out_and_put_back_and_somebody_notices(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    copy = copy_of(repository, tmp_path_factory.mktemp("copy"))
    evidence = by_tests(["tests/test_check.py::test_children"], to_the_end=False)
    assert ran(evidence, copy).noticed_by == ()
    with copy.mutated([Edit("src/sluice/check.py", "age >= 18", "True")]):
        assert "return True" in (copy.root / "src/sluice/check.py").read_text()
        assert ran(evidence, copy).noticed_by == ("tests/test_check.py::test_children",)
    assert (copy.root / "src/sluice/check.py").read_text() == _CHECK == (repository / "src/sluice/check.py").read_text()
    assert ran(evidence, copy).noticed_by == ()
    with pytest.raises(RuntimeError, match="ended with 4"):
        ran(by_tests(["tests/test_check.py::test_adults"], to_the_end=False), copy)
    with copy.mutated([Edit("src/sluice/check.py", "def allowed(", "def allowed((")]), pytest.raises(RuntimeError, match="ended with"):
        ran(evidence, copy)


def test_what_does_not_end_is_noticed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    endless = Evidence("simulator", (sys.executable, "-c", "while True: pass"), ("0..1",), limit_s=0.5)
    finding = ran(endless, Copy(repository))
    assert finding.noticed_by == ("0..1",)
    assert "did not end" in finding.said


def test_seeds_are_a_range() -> None:
    assert by_seeds("3..9").command[-6:-2] == ("3", "--seeds", "7", "--stop-after")
