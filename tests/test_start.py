"""What a program pays for at its start: names are imported when they are first used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sluice

FACE = Path(sluice.__file__)


def loaded_by(code: str) -> set[str]:
    """The top-level packages, and sluice's floors, that a new process has loaded after `code`."""
    show = "import sys; print(*{'.'.join(n.split('.')[:2]) if n.startswith('sluice') else n.split('.')[0] for n in sys.modules})"
    return set(subprocess.run([sys.executable, "-c", f"{code}\n{show}"], check=True, capture_output=True, text=True).stdout.split())


def test_importing_sluice_loads_nothing_of_it_but_its_names() -> None:
    loaded = loaded_by("import sluice")
    assert "sluice" in loaded
    assert not loaded & {
        "pyarrow",
        "boto3",
        "botocore",
        "kazoo",
        "sqlglot",
        "pyspark",
        "sluice.storage",
        "sluice.coordinator",
        "sluice.tables",
    }


def test_a_local_table_loads_neither_an_s3_client_nor_a_parser_nor_spark(tmp_path: Path) -> None:
    code = (
        "import pyarrow as pa, sluice\n"
        f"t = sluice.Table.create({str(tmp_path / 't')!r}, pa.schema([('n', pa.int64())]), coordinator='memory://start')\n"
        "t.append(pa.table({'n': [1]}))\n"
        "assert t.snapshot().to_arrow().num_rows == 1"
    )
    assert not loaded_by(code) & {"boto3", "botocore", "sqlglot", "pyspark", "py4j", "rich", "click", "moto"}


def test_the_process_that_looks_for_data_sources_loads_no_floor() -> None:
    pytest.importorskip("pyspark")
    loaded = loaded_by("import pyspark_sluice")
    assert "sluice.spark_integration" in loaded
    assert not loaded & {"sluice.storage", "sluice.coordinator", "sluice.tables", "boto3", "kazoo", "sqlglot"}


def test_a_task_that_writes_loads_nothing_that_commits() -> None:
    pytest.importorskip("pyspark")
    loaded = loaded_by("import sluice.spark_integration.writer")
    assert "sluice.tables" in loaded
    assert not loaded & {"boto3", "kazoo", "sqlglot"}


@pytest.mark.parametrize("package", ["sluice", "sluice.spark_integration"])
def test_every_public_name_is_found_where_type_checkers_look_for_it(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    told = {
        name.name: f"{package}.{node.module}"
        for branch in tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert told.keys() | {"__version__"} == set(module.__all__) | {"__version__"}
    for name, home in told.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    assert set(module.__all__) <= set(dir(module)) | set(told)


def test_a_name_there_is_not_is_refused_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'sluice' has no attribute 'nothing'"):
        sluice.nothing  # noqa: B018
    with pytest.raises(ImportError):
        exec("from sluice import nothing")
