"""Examples in docstrings of public names run, and arguments that they explain exist."""

from __future__ import annotations

import inspect
import re
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice

MOST_USED = ("create", "open", "snapshot", "changes", "begin", "append", "overwrite", "delete", "update", "upsert")
KEYWORDS = {"terms", "opening"}
"""Keywords that many calls share: docs/reference/keywords.md explains each."""
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("state", pa.string())])
ROWS = pa.table({"id": [1, 2, 30], "state": ["new", "late", "late"]}, schema=SCHEMA)


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(set(vars(sluice)["__all__"]) - {"errors", "metrics", "__version__"}):
        each = getattr(sluice, name)
        if inspect.isfunction(each):
            yield name, each
        elif inspect.isclass(each):
            yield from ((f"{name}.{member}", getattr(each, member)) for member in dir(each) if not member.startswith("_"))


def texts() -> dict[str, str]:
    docstrings = {name: inspect.getdoc(each) or "" for name, each in public() if callable(each)}
    return {name: text for name, text in docstrings.items() if text}


def part(text: str, heading: str) -> str:
    """What stands below a heading of Google's style."""
    block = re.search(rf"^{heading}:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    return textwrap.dedent(block[1]) if block else ""


EXAMPLES = {name: code for name, text in texts().items() for code in re.findall(r"```python\n(.*?)```", part(text, "Examples"), re.DOTALL)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    monkeypatch.setenv("SLUICE_COORDINATOR", coordinator)
    monkeypatch.chdir(tmp_path)
    table, other = (sluice.Table.create(each, SCHEMA, coordinator=coordinator) for each in ("table", "other"))
    table.append(ROWS)
    exec(EXAMPLES[name], {"sluice": sluice, "pa": pa, "table": table, "other": other, "coordinator": coordinator})


def test_what_is_used_most_has_examples() -> None:
    assert {f"Table.{name}" for name in MOST_USED} | {"transaction", "transact"} <= EXAMPLES.keys()


def test_arguments_that_are_explained_exist() -> None:
    explained = {name: re.findall(r"^(\w+): ", part(text, "Args"), re.MULTILINE) for name, text in texts().items()}
    assert len([each for each in explained.values() if each]) >= 3
    for name, each in public():
        if explained.get(name):
            parameters = [word for word in explained[name] if word not in KEYWORDS]
            taken = [word for word in inspect.signature(each).parameters if word in parameters]
            assert parameters == taken, f"{name} explains other arguments than it takes"


def test_errors_that_are_explained_exist() -> None:
    for name, text in texts().items():
        assert [each for each in re.findall(r"^(\w+): ", part(text, "Raises"), re.MULTILINE) if not hasattr(sluice.errors, each)] == [], (
            name
        )
