"""docs/troubleshooting.md has every public error, and every warning that the code logs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sluice import cli
from tests.test_docs_tables import PUBLIC_ERRORS, ROOT, SOURCES, names, section

PAGE = "troubleshooting.md"
ELSEWHERE = {"…": "the file of the log that was changed: the line `_delta_log/… of … differs from …`"}
"""Warnings whose text is made elsewhere, by what they are."""


def shape(message: str) -> str:
    """A message without what differs each time."""
    return re.sub(r"%[a-z]", "…", message)


def warnings_of(tree: ast.AST) -> Iterator[str]:
    """The texts that a module logs as warnings or errors."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).endswith("log")):
            continue
        leveled = node.func.attr == "log"
        if node.func.attr in ("warning", "error", "exception", "critical") or (leveled and "WARNING" in ast.unparse(node.args[0])):
            message = ast.literal_eval(node.args[leveled])
            assert isinstance(message, str)
            yield shape(message)


def test_every_public_error_has_a_line() -> None:
    assert sorted(names(section(PAGE, "Errors"))) == sorted(PUBLIC_ERRORS)


def test_every_warning_has_a_line() -> None:
    logged = {message for path in SOURCES for message in warnings_of(ast.parse(path.read_text()))} - ELSEWHERE.keys()
    assert len(logged) > 30
    shown = set(names(section(PAGE, "Log lines")))
    assert logged - shown == set(), "say in docs/troubleshooting.md what it means and what to do"
    assert {each for each in shown - logged if not each.startswith("_delta_log/")} == set(), "nothing logs this any more"


def test_what_is_logged_by_another_name_is_seen() -> None:
    """Every logger has a name that the search looks for."""
    made = re.compile(r"^(\w+)(?:: \S+)? = logging\.getLogger", re.MULTILINE)
    assert [name for path in SOURCES for name in made.findall(path.read_text()) if not name.endswith("log")] == []
    sample = "_log.warning('%s of %s')\nlog.exception('a')\n_log.log(WARNING if x else INFO, 'b %d')\n_log.info('no')"
    assert list(warnings_of(ast.parse(sample))) == ["… of …", "a", "b …"]


def test_metrics_that_are_named_exist() -> None:
    on_the_page = set(names(section(PAGE, "Metrics")))
    explained = (ROOT / "docs" / "operations" / "metrics.md").read_text()
    assert on_the_page
    assert [each for each in on_the_page if f"`{each.split()[0]}`" not in explained] == []


def test_messages_that_are_named_exist() -> None:
    made = {
        ast.literal_eval(node.args[0])
        for node in ast.walk(ast.parse((ROOT / "src/sluice/operating/judging.py").read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "_message"
    }
    assert set(names(section(PAGE, "Messages of the status"))) <= made


def test_commands_that_are_named_exist() -> None:
    text = (ROOT / "docs" / PAGE).read_text()
    assert set(re.findall(r"`sluice ([a-z-]+)", text)) <= {each for group in cli._GROUPS.values() for each in group}
