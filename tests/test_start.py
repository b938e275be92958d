"""What a program pays for at its start: names are imported when they are first used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sluice
from sluice import lazy

FACE = Path(sluice.__file__)


def loaded_by(code: str) -> set[str]:
    """The top-level packages, and sluice's floors, that a new process has loaded after `code`."""
    show = "import sys; print(*{'.'.join(n.split('.')[:2]) if n.startswith('sluice') else n.split('.')[0] for n in sys.modules})"
    return set(subprocess.run([sys.executable, "-c", f"{code}\n{show}"], check=True, capture_output=True, text=True).stdout.split())


def test_importing_sluice_loads_nothing_of_it_but_its_names() -> None:
    loaded = loaded_by("import sluice")
    assert "sluice" in loaded
    others = {"pyarrow", "boto3", "botocore", "kazoo", "sqlglot", "pyspark", "moto", "deltalake", "pandas", "numpy"}
    assert not loaded & {*others, "sluice.storage", "sluice.coordinator", "sluice.tables"}


def test_a_local_table_loads_neither_an_s3_client_nor_a_parser_nor_spark(tmp_path: Path) -> None:
    code = (
        "import pyarrow as pa, sluice\n"
        f"t = sluice.Table.create({str(tmp_path / 't')!r}, pa.schema([('n', pa.int64())]), coordinator='memory://start')\n"
        "t.append(pa.table({'n': [1]}))\n"
        "assert t.snapshot().to_arrow().num_rows == 1"
    )
    assert not loaded_by(code) & {"boto3", "botocore", "sqlglot", "pyspark", "py4j", "rich", "click", "moto"}


# Spark runs each phase in a process of its own. Each program below is one, with what Spark hands on pickled in `handed`.
PHASES = {
    "looking for data sources": "import pyspark_sluice",
    "plan a write": "keep('writer', source(path=place + '-planned', coordinator='memory://start').writer(schema, False))",
    "write": "taken('writer').write(rows())",
    # with its plan: the coordinator is in the memory of the process
    "plan and commit a write": (
        "writer = source(path=place, coordinator='memory://start').writer(schema, False)\nwriter.commit([writer.write(rows())])"
    ),
    "schema": "assert source(path=place, consistency='published').schema() == schema",
    "plan a read": "reader = source(path=place, consistency='published').reader(schema); keep('read', (reader, reader.partitions()))",
    "read": "reader, parts = taken('read'); assert sum(each.num_rows for each in reader.read(parts[0])) == 1",
    "plan a stream": (
        "reader = source(path=place, consistency='published').streamReader(schema)\nstart = reader.initialOffset()\n"
        "end = reader.latestOffset(start, reader.getDefaultReadLimit())\nkeep('stream', (reader, reader.partitions(start, end)))"
    ),
    "read a stream": "reader, parts = taken('stream'); assert sum(each.num_rows for each in reader.read(parts[0])) == 1",
}
_PHASE = """
import pickle, sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql.types import LongType, StructType
schema, handed = StructType().add('n', LongType()), Path({folder!r})
place = str(handed / 't')
def source(**options):
    from sluice.spark_integration.data_source.source import SluiceDataSource
    return SluiceDataSource(options)
def keep(name, value): (handed / name).write_bytes(pickle.dumps(value))
def taken(name): return pickle.loads((handed / name).read_bytes())
def rows(): return iter([pa.record_batch({{'n': pa.array([1], pa.int64())}})])
{phase}
print(*sys.modules)
"""
OF_S3_AND_SQL = ("boto3", "botocore", "sqlglot", "rich", "click")
_CARE = ("sluice.operating.doctor", "sluice.tables.manage.recovery")
_WRITING = ("sluice.tables.table", "sluice.tables.transaction", "sluice.tables.read.changes", "sluice.tables.maintain.vacuum")
_TABLES = ("kazoo", "sluice.tables.client.open_table")
_LOGS = ("sluice.coordinator", "sluice.storage.log.snapshot", "sluice.storage.pruning.predicate")
MAY_LOAD = {
    "looking for data sources": (5, ("sluice.storage", "pyarrow.compute", "kazoo")),
    "plan a write": (290, _CARE),
    "write": (82, (*_TABLES, "sluice.coordinator.nodes.records", "sluice.coordinator.service.connect")),
    "plan and commit a write": (290, _CARE),
    "schema": (200, _WRITING),
    "plan a read": (200, _WRITING),
    "read": (42, (*_TABLES, *_LOGS)),
    "plan a stream": (220, _WRITING),
    "read a stream": (48, (*_TABLES, *_LOGS)),
}
"""How many of sluice's modules a phase may load, and what it loads none of."""


@pytest.fixture(scope="module")
def loaded_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The modules that each phase of a first append and a first read loads, one after the other."""
    pytest.importorskip("pyspark")
    folder = str(tmp_path_factory.mktemp("phases"))
    loaded = {}
    for name, phase in PHASES.items():
        program = _PHASE.format(folder=folder, phase=phase)
        loaded[name] = set(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split())
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_loads_what_it_needs(phase: str, loaded_in: dict[str, set[str]]) -> None:
    most, none_of = MAY_LOAD[phase]
    loaded = loaded_in[phase]
    assert len([name for name in loaded if name.split(".")[0] == "sluice"]) <= most
    assert not loaded & {*none_of, *OF_S3_AND_SQL}


@pytest.mark.parametrize("package", ["sluice", "sluice.spark_integration"])
def test_every_public_name_is_found_where_type_checkers_look_for_it(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    [branch] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
    told = {alias.name: (node.module, alias.asname) for node in imports for alias in node.names}
    assert sorted(told) == module.__all__
    for name, (home, exported) in told.items():
        assert exported == name, "an import for others is written `a as a`"
        expected = importlib.import_module(f".{home or name}", package)
        assert getattr(module, name) is (getattr(expected, name) if home else expected)
    assert set(told) <= set(dir(module))


def test_there_are_few_public_names_and_the_errors_have_a_module_of_their_own() -> None:
    names = vars(sluice)["__all__"]
    assert len(names) <= 60
    assert not {name for name in names if isinstance(each := getattr(sluice, name), type) and issubclass(each, Exception)}


@pytest.mark.costly
def test_names_are_found_in_a_zip_file(tmp_path: Path) -> None:
    """As Spark's executors get it with `--py-files`."""
    with zipfile.ZipFile(tmp_path / "sluice.zip", "w") as archive:
        for path in FACE.parent.rglob("*.py"):
            archive.write(path, path.relative_to(FACE.parents[1]))
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'sluice.zip')!r})\n"
    code += "import sluice; print(sluice.__file__, sluice.Table, sluice.errors)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"{tmp_path}/sluice.zip/sluice/__init__.py <class 'sluice.tables.table.Table'> <module 'sluice.errors'")


def test_a_name_there_is_not_is_refused_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'sluice' has no attribute 'nothing'"):
        sluice.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        exec("from sluice import nothing")


@pytest.mark.parametrize(("missing", "said"), [("pyspark.sql", "needs PySpark.*pip install"), ("pandas", "no pandas")])
def test_only_a_missing_pyspark_is_reported_as_one(monkeypatch: pytest.MonkeyPatch, missing: str, said: str) -> None:
    def absent(module: str, package: str) -> None:
        raise ModuleNotFoundError(f"no {missing} for {package}{module}", name=missing)

    monkeypatch.setattr(lazy, "import_module", absent)
    monkeypatch.delattr(sluice, "read", raising=False)
    with pytest.raises(ImportError, match=said):
        _ = sluice.read
