"""What the documentation shows works: every Python block runs, every `make` target and every link exists."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import sluice
from tests.fixtures.spark_jvm import SparkJvm

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CONSOLE = Path(__file__).with_name("page_console.py")
PAGES = sorted([*(ROOT / f"{page}.md" for page in ("README", "CONTRIBUTING", "SECURITY")), *DOCS.rglob("*.md")])
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its info string, its text, and the line it begins on."""

    info: str
    code: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        indent = len(found["indent"])
        code = "".join(line[indent:] if line.strip() else "\n" for line in found["code"].splitlines(keepends=True))
        yield Block(found["info"].strip(), code, text.count("\n", 0, found.start("code")) + 1)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def installs(page: Path) -> list[str]:
    """What a page tells its reader to install, as requirements; a page that says nothing continues the first one."""
    shell = "\n".join(block.code for block in blocks(page.read_text()) if block.info == "sh")
    words = [word for line in re.findall(r"\bpip install (.*)", shell) for word in shlex.split(line, comments=True)]
    if not words:
        return installs(DOCS / "getting-started.md")
    return [re.sub(r"^\.(?=$|\[)", "sluice-delta", word) for word in words if not word.startswith("-")]


def run(
    page: str, code: list[Block], folder: Path, requirements: list[str], jvm: SparkJvm | None = None
) -> subprocess.CompletedProcess[str]:
    """Paste a page's blocks one after the other into one interactive session, as a reader would who has installed `requirements`.

    A process per page: the coordinator a page starts ends with it, and nothing it configures reaches another test. `jvm` says where pages
    with Spark make their contexts.
    """
    home, work, temporary = (folder / each for each in ("home", "work", "temporary"))
    work.mkdir()
    temporary.mkdir()
    environment = {**os.environ, "SLUICE_HOME": str(home), "TMPDIR": str(temporary), **({} if jvm is None else jvm.environment(home))}
    pasted = json.dumps([[block.code, block.line] for block in code])
    return subprocess.run(
        [sys.executable, str(CONSOLE), page, pasted, *requirements],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def python_of(page: Path) -> list[Block]:
    return [block for block in blocks(page.read_text()) if block.info == "python"]


def uses_spark(page: Path) -> bool:
    return any("pyspark" in block.code for block in python_of(page))


LARGE = {DOCS / f"{page}.md" for page in ("coming-from-delta", "spark", "sql", "streaming")}
"""They need more of Spark than the other pages; `delta`, `statements` and `spark_integration` try what they show."""


HEAVY = ("ray", "daft", "dask")
"""Engines that a page is about, and that are too large for the environment of the tests: what is not installed is skipped by name."""


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page) and not uses_spark(page)], ids=name)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    if page.parent.name == "writers" and page.stem in HEAVY:
        pytest.importorskip(page.stem)
    result = run(name(page), python_of(page), tmp_path, installs(page))
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name(page), marks=[pytest.mark.long] * (page in LARGE)) for page in PAGES if uses_spark(page)]
)
def test_python_blocks_run_on_spark(page: Path, tmp_path: Path, spark_jvm: SparkJvm) -> None:
    result = run(name(page), python_of(page), tmp_path, installs(page), spark_jvm)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_python_block_escapes(page: Path) -> None:
    """Only `python` blocks are run, so nothing may hide behind a variation of the word."""
    infos = {block.info for block in blocks(page.read_text())}
    assert not {info for info in infos if re.match(r"(?i)py|>>>", info)} - {"python"}
    assert "" not in infos, "name the language of each block; `text` for drawings and output"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_targets_of_make_links_and_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    shell = "\n".join(block.code for block in blocks(text) if block.info in {"sh", "bash", "shell", "console"})
    [phony] = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^\s*(?:\$ )?make ([a-z][a-z-]*)", shell, re.MULTILINE)) <= set(phony.split())
    links = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", _FENCE.sub("", text))
    assert [target for target, _ in links if not (page.parent / target).exists()] == []
    for target, anchor in links:
        if anchor:
            assert anchor in anchors((page.parent / target if target else page).read_text()), f"{target}#{anchor}"
    named = re.findall(r"`((?:tests|src|scripts|benchmarks|docs)/[\w./-]+\.\w+)(?:::\w+)?`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def anchors(text: str) -> set[str]:
    """The names that a page's headings have on GitHub and on the site."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("text", sorted(DOCS.glob("diagrams/*.mmd")), ids=name)
def test_diagrams_are_drawn_from_their_texts(text: Path) -> None:
    """`scripts/draw-diagrams` was run after the last change of the text."""
    assert hashlib.sha256(text.read_bytes()).hexdigest() in text.with_suffix(".svg").read_text().splitlines()[-1]


def test_the_site_loads_nothing_from_a_network() -> None:
    """The theme would fetch a script for Mermaid blocks, and one for the search of a site that is opened from the disk."""
    assert [name(page) for page in PAGES if any(block.info == "mermaid" for block in blocks(page.read_text()))] == []
    site = (ROOT / "mkdocs.yml").read_text()
    assert re.search(r"polyfills:\n +- javascripts/iframe-worker\.js", site)
    assert re.search(r"^  font: false", site, re.MULTILINE)
    assert "https://" not in (DOCS / "javascripts/iframe-worker.js").read_text()


def test_the_site_has_every_page_and_the_reference_every_public_name() -> None:
    listed = re.findall(r"^ *- (?:\w+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    pages = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    told = re.findall(r"^::: sluice\.(\w+)$", pages, re.MULTILINE)
    assert sorted(told) == sorted(set(vars(sluice)["__all__"]) - {"__version__", "errors"})
    errors = re.findall(r"^::: sluice\.errors\.(\w+)$", pages, re.MULTILINE)
    assert sorted(errors) == sorted(name for name, each in vars(sluice.errors).items() if isinstance(each, type))


FOR_OTHER_PACKAGES = {
    "Table": {"coordinated", "noted"},
    "Transaction": {"basis", "discard", "finish", "move_to", "operation", "parts_read", "stage", "tell_loss", "with_part"},
    "JointTransaction": {"parts_read"},
    "Consumer": {"application_for", "committed", "require_left"},
    "WritePlan": {"depends", "gather", "require_filling", "require_fit", "require_partitions"},
    "Lease": {"keep", "nodes"},
}
"""Members that other packages of sluice use, and the reference leaves out."""


@pytest.mark.parametrize("name", FOR_OTHER_PACKAGES)
def test_the_reference_has_every_public_member(name: str) -> None:
    pages = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    [options] = re.findall(rf"^::: sluice\.{name}\n((?: .*\n?)+)", pages, re.MULTILINE)
    told = re.findall(r"^ +- (\w+)$", options, re.MULTILINE) or re.findall(r"\w+", options.partition("members: [")[2].partition("]")[0])
    documented = getattr(sluice, name)
    fields = getattr(documented, "__dataclass_fields__", {})  # the docstring of the class explains them
    public = {each for each in dir(documented) if not each.startswith("_") and each not in fields}
    assert len(told) == len(set(told))
    assert set(told) | FOR_OTHER_PACKAGES[name] >= public
    assert set(told).isdisjoint(FOR_OTHER_PACKAGES[name])


@pytest.mark.parametrize("page", ["architecture.md", "model.md"])
def test_code_that_is_named_exists(page: str) -> None:
    """`module.name` in a table is something that a module of ours defines."""
    table = "\n".join(line for line in (DOCS / page).read_text().splitlines() if line.startswith("| I"))
    named = re.findall(r"`([a-z_]+)\.(?:\w+\.)?(\w+)`", table)
    assert len(named) > 8
    for module, word in named:
        texts = [path.read_text() for path in (ROOT / "src").rglob(f"{module}.py")]
        assert any(re.search(rf"(?:def|class) {word}\b", text) for text in texts), f"{module}.{word}"


def test_blocks_are_found_with_their_lines() -> None:
    text = "# x\n\n```python\na = 1\n```\n\n1. item\n\n   ```python\n   b = a + 1\n   ```\n\n```sh\nmake test\n```\n"
    assert list(blocks(text)) == [Block("python", "a = 1\n", 4), Block("python", "b = a + 1\n", 10), Block("sh", "make test\n", 14)]


def page_of(*texts: str) -> list[Block]:
    return [Block("python", text, line) for line, text in zip((4, 10), texts, strict=False)]


def test_blocks_of_a_page_share_their_names_and_failures_point_into_the_page(tmp_path: Path) -> None:
    result = run("docs/page.md", page_of("a = 1\n", "b = a + 1\nassert b == 3, b\n"), tmp_path, ["sluice-delta"])
    assert result.returncode == 1
    assert 'File "docs/page.md", line 11' in result.stderr
    assert "AssertionError: 2" in result.stderr


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("if True:\n    a = 1\nb = 2\n", "pasted into a session, line 6 of docs/page.md"),
        ("def f():\n    a = 1\n\n    return a\n", "pasted into a session, line 7 of docs/page.md"),
        ("a = (1,\n", "the statement that begins on line 4 of docs/page.md is not complete"),
        ("import pyspark\n", "No module named 'pyspark'"),
    ],
)
def test_a_block_that_a_session_does_not_take_fails(text: str, error: str, tmp_path: Path) -> None:
    result = run("docs/page.md", page_of(text), tmp_path, ["sluice-delta"])
    assert result.returncode == 1
    assert error in result.stderr


def test_pages_say_what_to_install(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\npip install '.[sql]' polars  # both\npip install .\n```\n")
    assert installs(page) == ["sluice-delta[sql]", "polars", "sluice-delta"]
    page.write_text("nothing\n")
    assert installs(page) == installs(DOCS / "getting-started.md")
