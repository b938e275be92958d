"""The tables of docs/ say what the code says: rules, errors, options, limits, environment variables.

``python -m tests.test_docs_tables`` prints the table of rules as docs/isolation.md must hold it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.failure_points import FAILPOINTS
from sluice.coordinator.rules.conflicts import RULES, Rule
from sluice.coordinator.rules.intent import ConflictPolicy, IsolationLevel
from sluice.coordinator.rules.policies import MATRICES
from sluice.coordinator.service import address
from sluice.storage.actions import Metadata, Protocol, features
from sluice.storage.errors import SluiceError, UnsupportedFeature
from sluice.storage.stores.storage_options import StorageOptions
from sluice.tables.client.property_rules import HANDED_ON, PROPERTIES
from sluice.tables.manage.dropping_features import REMOVALS
from tests.marked import marked, pages
from tests.mutations.catalogue import CHECKS, HELD

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MATRIX_FACTS = ROOT / "tests" / "coordinator" / "conflict_matrices.json"
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def section(page: str, heading: str) -> str:
    """The text below a heading of a page, up to the next heading of the same or a higher rank."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}\n", text, re.MULTILINE)
    assert found is not None, f"docs/{page} has no heading {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The cells of the Markdown tables in a text, without their headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    ruled = [n for n, row in enumerate(cells) if all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    return [row for n, row in enumerate(cells) if n not in ruled and n + 1 not in ruled]


def names(text: str) -> list[str]:
    """The code words of the first cells, one cell may hold several."""
    return [word for row in rows(text) for word in re.findall(r"`([^`]+)`", row[0])]


def _levels(rule: Rule) -> str:
    return "all" if rule.levels == frozenset(IsolationLevel) else ", ".join(level.value for level in IsolationLevel if level in rule.levels)


def _policies(rule: Rule) -> str:
    if rule.policies.keys() >= set(ConflictPolicy):
        return "all"
    return "`maxcompute-*`" if rule.policies.keys() <= MATRICES.keys() else "`delta`, `databricks`"


def rules_table() -> list[str]:
    """The rules, one line each, in the order in which they are asked."""
    return [f"| `{r.name}` | {r.asks} | {_levels(r)} | {_policies(r)} | `{r.error}` | {r.advice} |" for r in RULES]


def matrix_table(policy: ConflictPolicy) -> list[str]:
    """A matrix of MaxCompute: a line for each earlier operation, a column for each later one."""
    matrix = MATRICES[policy]
    words = list(dict.fromkeys(earlier for earlier, _ in matrix))
    head = ["| earlier \\ later | " + " | ".join(words) + " |", "|---" * (len(words) + 1) + "|"]
    return head + [f"| {earlier} | " + " | ".join(matrix[earlier, later] for later in words) + " |" for earlier in words]


_SAID = {
    "never": "cannot conflict",
    "same_row": "only when both change the same row",
    "same_partition": "only in the same partition",
    "same_file": "only when both change the same file",
    "only_if_zorder": "cannot conflict (Databricks: only with a z-order)",
}


def databricks_table(kind: str) -> list[str]:
    """Which pairs can conflict on Databricks, one line each."""
    lines = []
    for pair, cell in json.loads(MATRIX_FACTS.read_text())["databricks"][kind].items():
        first, second = (name.replace("_", "/") for name in pair.split("/"))
        if "WriteSerializable" in cell:
            told = [_SAID[cell["WriteSerializable"]], _SAID[cell["Serializable"]]]
        else:  # tables without row-level concurrency may have deletion vectors all the same; here they then have both
            told = [_SAID[cell["no_deletion_vectors"]]] * 2
        told = [t.replace("both change the same row", "the inserted row is one I change") if "INSERT" in pair else t for t in told]
        lines.append(f"| {first} and {second} | {told[0]} | {told[1]} |")
    return lines


def constants() -> Iterator[str]:
    """Every text in the code that is not a docstring or part of one."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


PUBLIC_ERRORS = {name: each for name, each in vars(sluice.errors).items() if isinstance(each, type)}


def raised_details() -> dict[str, set[str]]:
    """The facts that each public error is given where it is raised by its name."""
    found: dict[str, set[str]] = {name: set() for name in PUBLIC_ERRORS}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in found:
                found[node.func.id] |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}
    return found


def test_the_rules_levels_and_policies_are_those_of_the_code() -> None:
    assert _rows_of("isolation.md", "The rules") == rules_table()
    assert names(section("isolation.md", "The levels")) == [level.value for level in IsolationLevel]
    assert names(section("isolation.md", "The policies")) == [policy.value for policy in ConflictPolicy]


def test_the_matrices_are_those_of_the_code_and_the_pairs_of_databricks_the_facts() -> None:
    text = section("isolation.md", "For users of MaxCompute")
    for policy in MATRICES:
        assert "\n".join(matrix_table(policy)) in text
    text = section("isolation.md", "For users of Databricks")
    for kind in ("with_row_level_concurrency", "without_row_level_concurrency"):
        assert "\n".join(databricks_table(kind)) in text


def test_every_public_error_is_told_once_and_stands_in_the_tree_of_the_classes() -> None:
    assert sorted(names(section("errors.md", "The classes"))) == sorted(PUBLIC_ERRORS)
    [drawing] = re.findall(r"```text\n(.*?)```", section("errors.md", "The tree"), re.DOTALL)
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in drawing.splitlines():
        name = line.split()[0]
        indent = len(line) - len(line.lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        if above:
            parents[name] = above[-1][1]
        above.append((indent, name))
    classes = {*PUBLIC_ERRORS.values()} - {SluiceError}
    assert parents == {cls.__name__: cls.__mro__[1].__name__ for cls in classes}


def test_errors_have_the_attributes_that_are_told() -> None:
    details = raised_details()
    winning = {f"winning_{each}" for each in ("version", "operation", "application", "host", "pid", "transaction_id", "time_ms")}
    committing = {"rule", "transaction_id", "facts", "lost_operation", "lost_operation_name", *winning}
    for cells in rows(section("errors.md", "The classes")):
        [name] = re.findall(r"`([^`]+)`", cells[0])
        told = set(re.findall(r"`(\w+)`", cells[3]))
        known = details[name] | (committing if issubclass(PUBLIC_ERRORS[name], sluice.errors.NotCommitted) else set())
        assert told <= known, f"{name} has no {sorted(told - known)}"


def test_options_of_stores_and_addresses_and_limits_with_their_defaults() -> None:
    assert names(section("configuration.md", "Storage options")) == [each.name for each in fields(StorageOptions)]
    known = {option for options in address._OPTIONS.values() for option in options}
    assert set(names(section("configuration.md", "Options of an address"))) == known
    told = {re.findall(r"`([^`]+)`", row[0])[0]: row[1] for row in rows(section("configuration.md", "Limits"))}
    assert told == {each.name: str(each.default) if isinstance(each.default, bool) else f"{each.default:,}" for each in fields(Limits)}


def test_environment_variables() -> None:
    # a constant that a module exports under this name, and what a command that holds a lease is given
    own_names = {"SLUICE_FEATURE", "SLUICE_LEASE", "SLUICE_LEASE_TOKEN"}
    read = {text for text in constants() if re.fullmatch(r"SLUICE_[A-Z]+(_[A-Z]+)*", text)} - own_names
    assert {name for name in names(section("configuration.md", "Environment variables")) if name.startswith("SLUICE_")} == read


def properties_table() -> list[str]:
    """The table properties that sluice obeys or checks, one line each."""
    lines = (f"| `{each.name}` | {each.values} | {each.default} | {each.meaning} |" for each in PROPERTIES)
    return [line.replace("|  |", "| |") for line in lines]


def test_table_properties() -> None:
    assert _rows_of("configuration.md", "Table properties") == properties_table()
    handed_on = section("configuration.md", "Table properties").partition("kept for other engines")[2].partition("\n\n")[0]
    assert re.findall(r"`([^`]+)`", handed_on) == [name.removeprefix("delta.") for name in HANDED_ON]


def test_table_features() -> None:
    """docs/features.md says of every feature what the code does with a table that has it."""
    table = rows(section("features.md", "Table features"))
    yes_or_no = {True: "yes", False: "no"}
    for cell, reads, writes, drops, _, tested in table:
        name = cell.strip("`")
        readers = name in features._READABLE or reads == "no"
        protocol = Protocol(3, 7, (name,), (name,)) if readers else Protocol(1, 7, None, (name,))
        with nullcontext() if reads == "yes" else pytest.raises(UnsupportedFeature, match=re.escape(name)):
            features.check_readable(protocol, Metadata("", "", (), {}))
        assert (writes, drops) == (yes_or_no[name in features._WRITABLE], yes_or_no[name in REMOVALS]), name
        path = ROOT / "tests" / tested.strip("`")
        assert path == Path(__file__) or name in path.read_text(), name
    assert {row[0].strip("`") for row in table} >= features._WRITABLE | {*features._LIMITS}


def test_spark_options() -> None:
    tables = pytest.importorskip("sluice.spark_integration.option_tables")
    listed = [row for row in _rows_of("configuration.md", "Spark options") if "<name>" not in row]
    expected = [
        f"| `{name}` | {getattr(each, name).scope} | {meaning} |"
        for each in (tables.BothWays, tables.Reading, tables.Writing)
        for name, meaning in attributes(each)
    ]
    assert listed == expected
    assert _rows_of("streaming.md", "Reading") == [f"| `{name}` | {meaning} |" for name, meaning in attributes(tables.Streaming)]


def _rows_of(page: str, title: str) -> list[str]:
    return [line for line in section(page, title).partition("###")[0].splitlines() if line.startswith("| `")]


def attributes(cls: type) -> list[tuple[str, str]]:
    """The attributes of a class, and the text below each."""
    [node] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(node, ast.ClassDef)
    found: list[tuple[str, str]] = []
    for each, below in pairwise(node.body):
        if isinstance(each, ast.Assign) and isinstance(below, ast.Expr):
            found.append((ast.unparse(each.targets[0]), " ".join(ast.literal_eval(below.value).split())))
    return found


def test_failure_points() -> None:
    told = re.findall(r"`([a-z]+(?:-[a-z]+)+)`", section("architecture.md", "Failure points"))
    assert list(dict.fromkeys(told)) == list(FAILPOINTS)


def test_tests_that_are_named_exist() -> None:
    """docs/architecture.md says which test holds which invariant."""
    defined = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    told = re.findall(r"`(test_\w+)`", section("architecture.md", "Invariants"))
    assert len(told) > 8
    assert [name for name in told if name not in defined] == []


def test_tables_of_tests_are_those_of_the_markers() -> None:
    for page, text in pages().items():
        assert page.read_text() == text, f"`python -m tests.marked` writes {page.name}"


def test_every_trouble_is_shown_by_a_test() -> None:
    troubles = re.findall(r'^\| <a id="([a-z-]+)"></a>', (DOCS / "operations" / "failures.md").read_text(), re.MULTILINE)
    assert sorted(troubles) == sorted(marked("shows"))


def _text(*patterns: str) -> str:
    return "\n".join(path.read_text() for pattern in patterns for path in sorted((ROOT / "tests").glob(pattern)))


def test_invariants_are_checked_by_what_the_docs_say() -> None:
    """docs/operations/failures.md says who looks for a history that breaks an invariant, and how many checks are taken out for it."""
    table = rows(section("operations/failures.md", "The invariants, and how each is checked"))
    assert {row[0]: row[1] for row in table}.items() <= HELD.items()
    told = {row[0]: row[2:] for row in table}
    assert list(told) == [row[0] for row in rows(section("architecture.md", "Invariants"))]
    names_of = (_text("simulator/*.py", "judge/judge.py"), _text("judge/judge.py"))
    asserted = _text("promela/*.pml")
    switched_off = Counter(check.holds for check in CHECKS.values())
    for name, (*who, model, real, count) in told.items():
        for says, text in zip(who, names_of, strict=True):
            assert says != "yes" or re.search(rf"\b{name}\b", text), name
        assert model != "yes" or f"HOLDS({name[1:]}," in asserted, name
        assert real in ("yes", "") or name in ("I4", "I8")
        assert int(count) == switched_off[name], name


if __name__ == "__main__":
    print("\n".join(rules_table()))
