"""The repository keeps its own rules: the ones that no linter knows."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from sluice.coordinator import api

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_MODULES = 16
LINKS = {"coordinator", "storage", "spark_integration"}
IGNORED = {
    *(".git", ".venv", ".venv-clouds", ".venv-delta", ".venv-docs", ".venv-bench-spark", ".tools", "build", "dist", "site", "__pycache__"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".venv-connect"),
}

OPTIONAL = {
    "pyspark",
    "py4j",
    "moto",
    "deltalake",
    "polars",
    "duckdb",
    "prompt_toolkit",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "opentelemetry",
}
"""What an extra brings, so what may be imported inside a function: sluice works without it."""

STREAMS = {".stream_batches", "..stream_options", ".stream_reader"}
PHASES = {
    *(".changes", "...tables", "..options", ".options", ".option_tables", ".reader", ".read_plan", "..schemas", ".writer"),
    ".write_plan",
    *STREAMS,
}
SQL = {"..operating", "..shell", "..statements", ".statements", "..spark_session", ".delta", ".spark_integration"}
STORES = {".azure", ".s3"}
HEAVY = {*SQL, *STORES, "importlib", ".installation", ".parse", "...coordinator", "..admission", "..contention", ".consumer", *PHASES}
"""What loads metadata of packages, a store's library, sqlglot, the coordinator, its admission, what tells contention, Spark or a phase of
its jobs: late.
"""

LATER = r"\b(?:{})\b".format("|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")))
"""Put together from halves: this file is searched too."""

TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".sh", ""}


def ours(*suffixes: str, below: str = ".") -> list[Path]:
    """The repository's own files with these suffixes, the links at the root not followed."""
    found = []
    for folder, folders, names in os.walk(ROOT / below):
        folders[:] = [each for each in folders if each not in IGNORED and not each.endswith(".egg-info")]
        if Path(folder) == ROOT:
            folders[:] = [each for each in folders if each not in LINKS]
        found += [
            path for path in (Path(folder, each) for each in names if each not in IGNORED) if path.is_file() and path.suffix in suffixes
        ]
    return sorted(found)


SOURCES = ours(".py", below="src")
MODULES = [*SOURCES, *(path for folder in ("benchmarks", "examples", "tests") for path in ours(".py", below=folder))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(module: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(module))


@pytest.fixture(scope="module", autouse=True)
def no_tree_is_kept() -> Iterator[None]:
    """They are many, and every later test of this process would be the slower for them."""
    yield
    tree.cache_clear()
    nodes.cache_clear()


def broken(rule: Callable[[Path], object], paths: Iterable[Path]) -> dict[str, object]:
    """What a rule finds, by the names of the files in which it finds something."""
    return {name(path): found for path in paths if (found := rule(path))}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(tree(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: Sequence[str]) -> int:
    """Lines of a function without its docstring and its check points: what explains is not what is long."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total - sum(line.lstrip().startswith("# check: ") for line in lines[node.lineno : node.end_lineno])


def test_files_are_found() -> None:
    assert len(SOURCES) > 10
    assert ROOT / "src/sluice/__init__.py" in SOURCES
    assert not any(path.relative_to(ROOT).parts[0] in LINKS for path in MODULES)


def test_files_stay_small() -> None:
    sizes = {name(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: lines for path, lines in sizes.items() if lines > MAX_FILE_LINES} == {}, "divide it by what it is about"


def test_rooms_stay_small() -> None:
    """The listing of a folder is its table of contents."""
    rooms = {path.parent for path in SOURCES if name(path).startswith(FLOORS)}
    sizes = {name(room): sum(1 for path in SOURCES if path.parent == room and path.name != "__init__.py") for room in rooms}
    assert {room: modules for room, modules in sizes.items() if modules > MAX_MODULES} == {}, "divide it by what its modules decide"


def long_functions(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    lengths = {node.name: body_lines(node, lines) for node in functions(path)}
    return [f"{name}: {length} lines" for name, length in lengths.items() if length > MAX_FUNCTION_LINES]


def swallowed(module: ast.Module) -> list[int]:
    """Lines of `except` clauses that do nothing at all."""
    return [
        node.lineno
        for node in nodes(module)
        if isinstance(node, ast.ExceptHandler)
        and all(isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)) for line in node.body)
    ]


FLOORS = tuple(f"src/sluice/{floor}/" for floor in ("storage", "statements", "coordinator", "tables", "spark_integration"))


def lacks_directions(path: Path) -> list[str]:
    """What a room's docstring does not say."""
    text = ast.get_docstring(tree(path)) or ""
    return [words for words in ("mports", "egin with") if words not in text]


def takes_the_standard_decorator(path: Path) -> bool:
    imports = [node for node in nodes(tree(path)) if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"]
    return any(each.name == "dataclass" for node in imports for each in node.names)


def test_classes_are_made_by_the_decorator_that_starts_fast() -> None:
    found = broken(takes_the_standard_decorator, [path for path in SOURCES if name(path).startswith(FLOORS)])
    assert found == {"src/sluice/storage/dataclass.py": True}, "use storage.dataclass, which says why"


def late_imports(module: ast.Module) -> list[tuple[int, str]]:
    """(line, top-level package) of each import inside a function; a module's `__getattr__` exists to import late."""
    found = []
    for function in nodes(module):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and function.name != "__getattr__":
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    found += [(node.lineno, alias.name.partition(".")[0]) for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    found.append((node.lineno, "." * node.level + (node.module or "").partition(".")[0]))
    return found


def too_late(path: Path) -> list[tuple[int, str]]:
    return [(line, package) for line, package in late_imports(tree(path)) if package not in OPTIONAL | HEAVY]


def imported_modules(path: Path) -> set[Path]:
    """The files of ours that a file imports by relative names, for types and inside functions, too."""
    found: set[Path] = set()
    for node in nodes(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            found.update(place.with_suffix(".py") for place in (base, *(base / alias.name for alias in node.names)))
    return found & set(SOURCES)


def test_no_modules_import_one_another() -> None:
    """import-linter holds the direction between rooms; this finds circles inside them, those by late imports, too."""
    graph = {path: imported_modules(path) for path in SOURCES if path.name != "__init__.py"}
    TopologicalSorter(graph).prepare()  # raises CycleError


def is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def loaded(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """The top-level packages that these statements import; what only type checkers read is left out."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]
        elif not is_for_types(node):
            for block in ("body", "orelse", "handlers", "finalbody"):
                yield from loaded(getattr(node, block, []))


def declared() -> set[str]:
    """The packages that an installation of sluice without extras has; boto3 brings botocore."""
    listed = re.search(r"^dependencies = \[$(.*?)^\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert listed
    return {*re.findall(r'^ *"([\w-]+)', listed[1], re.MULTILINE), "botocore"}


def not_installed(path: Path) -> list[str]:
    """What an installation by pip does not have; the environment of the tests has more packages."""
    installed = {*declared(), *OPTIONAL, *sys.stdlib_module_names, "sluice"}
    assert {"boto3", "orjson"} <= installed
    return sorted(set(loaded(tree(path).body)) - installed)


def imports_of_the_face(path: Path) -> list[int]:
    depth = len(path.relative_to(ROOT / "src/sluice").parts)
    return [
        node.lineno
        for node in nodes(tree(path))
        if (isinstance(node, ast.Import) and any(alias.name == "sluice" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "sluice")
        or (isinstance(node, ast.ImportFrom) and node.level == depth and node.module is None)
    ]


ABOVE = tuple(f"src/sluice/{each}/" for each in ("tables", "spark_integration", "statements", "delta", "shell", "commands"))
INSIDE = {"context", "coordination", "publisher"}
"""What the floors above may pass on to the coordinator's functions, and not look into; a subclass may, in itself."""


def reaches_inside(path: Path) -> list[tuple[int, str]]:
    return [
        (node.lineno, f"{part.attr}.{node.attr}")
        for node in nodes(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(part := node.value, ast.Attribute) and part.attr in INSIDE
        if node.attr not in INSIDE and not (isinstance(part.value, ast.Name) and part.value.id == "self")
    ]


def test_the_coordinators_api_names_what_the_floors_above_use() -> None:
    used = {
        alias.name
        for path in SOURCES
        for node in nodes(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("coordinator.api")
        for alias in node.names
    }
    attributes = (node for path in SOURCES for node in nodes(tree(path)) if isinstance(node, ast.Attribute))
    used |= {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "api"}
    assert set(vars(api)["__all__"]) == used
    assert all(getattr(api, each) is not None for each in used)


def exported(path: Path) -> list[str] | None:
    for node in tree(path).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets) and node.value is not None:
                names: list[str] = ast.literal_eval(node.value)
                return names
    return None


def untrue_names(path: Path) -> list[str]:
    names = exported(path)
    if names is None:
        return []
    defined = {
        alias
        for node in tree(path).body
        for alias in (
            [node.name]
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            else [alias.asname or alias.name for alias in node.names]
            if isinstance(node, (ast.Import, ast.ImportFrom))
            else [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        )
    }
    twice = [each for each in set(names) if names.count(each) > 1]  # their order is ruff's RUF022
    return twice + [each for each in names if each not in defined and "__getattr__" not in defined]


Broken = Callable[[Path], object]
OF_FLOORS = [path for path in SOURCES if name(path).startswith(FLOORS)]
ROOMS = [path for path in SOURCES if path.name == "__init__.py" and path.parent.parent != ROOT / "src"]
RULES: dict[str, tuple[Broken, list[Path], str]] = {
    "functions fit a screen": (long_functions, SOURCES, ""),
    "no error is swallowed": (lambda path: swallowed(tree(path)), MODULES, "say what is done (contextlib.suppress says it for a call)"),
    "rooms say what they may import and where to begin": (lacks_directions, ROOMS, ""),
    "imports stand at the top": (too_late, SOURCES, ""),
    "what is imported is installed": (not_installed, SOURCES, "declare it in pyproject.toml, or import it for type checkers only"),
    # import-linter sees the packages, and what is imported; these see names of `sluice/__init__.py`, and `coordinated.context.clock`.
    "the floors do not import the face": (imports_of_the_face, OF_FLOORS, ""),
    "floors above use what the coordinator's api names": (reaches_inside, [p for p in SOURCES if name(p).startswith(ABOVE)], ""),
    "modules have the names in their `__all__`": (untrue_names, SOURCES, ""),
    "nothing is left for later": (
        lambda path: re.findall(LATER, path.read_text(errors="replace")), [*MODULES, *ours(*TEXT - {".py"})], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_the_files_keep_the_rule(rule: str) -> None:
    breaks, paths, remedy = RULES[rule]
    assert broken(breaks, paths) == {}, remedy


def test_the_only_links_are_the_three_signposts() -> None:
    links = {path.name: str(path.readlink()) for path in ROOT.iterdir() if path.is_symlink()}
    assert links == {each: f"src/sluice/{each}" for each in LINKS}
    assert all((ROOT / each / "__init__.py").is_file() for each in LINKS)
    below = [
        path for folder in ("src", "tests", "docs", "benchmarks", "docker", "examples", "scripts") for path in (ROOT / folder).rglob("*")
    ]
    assert [name(path) for path in below if path.is_symlink()] == []


def test_no_tool_is_pointed_at_the_links() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    folders = {key: ast.literal_eval(value) for key, value in re.findall(r"^(files|include|testpaths) = (\[.*\])$", settings, re.MULTILINE)}
    assert "exclude" not in settings, "a folder's bare name would leave out the floors of that name too"
    assert folders.keys() == {"files", "include", "testpaths"}
    assert not LINKS & {folder for each in folders.values() for folder in each}


@pytest.mark.parametrize(
    ("code", "check", "expected"),
    [
        ("try:\n    f()\nexcept OSError:\n    pass\n", swallowed, [3]),
        ("try:\n    f()\nexcept OSError:\n    ...\n", swallowed, [3]),
        ("try:\n    f()\nexcept OSError:\n    return_()\n", swallowed, []),
        ("def f():\n    import json\n    from .a import b\n", late_imports, [(2, "json"), (3, ".a")]),
        ("import json\n", late_imports, []),
        (
            "import a.b\nif TYPE_CHECKING:\n    import c\ntry:\n    from d import e\nfinally:\n    pass\n",
            lambda code: [*loaded(code.body)],
            ["a", "d"],
        ),
    ],
)
def test_the_rules_find_what_they_are_for(code: str, check: Callable[[ast.Module], object], expected: object) -> None:
    assert check(ast.parse(code)) == expected


def test_generators_wait_for_no_thread() -> None:
    """The garbage collector ends a generator that was given up, maybe inside the locks of `threading`: `caches.threads` is for that."""
    found: list[str] = []
    for path in ours(".py", below="src"):
        for function in functions(path):
            own = list(ast.walk(function))
            nested = {id(node) for each in own if each is not function and isinstance(each, ast.FunctionDef) for node in ast.walk(each)}
            is_generator = any(isinstance(node, (ast.Yield, ast.YieldFrom)) and id(node) not in nested for node in own)
            if is_generator and any(isinstance(node, ast.withitem) and "ThreadPoolExecutor" in ast.unparse(node) for node in own):
                found.append(f"{path}:{function.name}")
    assert found == []
