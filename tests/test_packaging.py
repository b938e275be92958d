"""What is built is what is needed: both packages, nothing else, and it can be imported next to a job's own modules."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"sluice", "pyspark_sluice"}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command without the test session's PYTHONPATH; its output, both kinds, is the reason when it fails."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environment
    result = subprocess.run([*map(str, command)], cwd=cwd, env=clean, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the sdist, built from a copy of the files that belong to the project: building leaves traces where it happens."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines():
        path = ROOT / name
        if path.is_symlink():
            (source / name).symlink_to(path.readlink())
        elif path.is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(path.read_bytes())
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=source)
    return out


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    [path] = dist.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel alone was installed; its dependencies are those of the tests' environment."""
    target = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "pip", "install", "--no-compile", "--no-deps", "--no-index", "--quiet", "--target", target, wheel, cwd=target)
    return target


@pytest.mark.costly
def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == PACKAGES
    modules = {str(path.relative_to(ROOT / "src")) for package in PACKAGES for path in (ROOT / "src" / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    static = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/sluice/operating/console/static").iterdir()}
    assert {name for name in names if "/static/" in name} == static, "what the console's page loads"


def test_the_sdist_can_be_built_from_and_carries_the_licence(dist: Path) -> None:
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/sluice/__init__.py", "src/pyspark_sluice/__init__.py"} <= names


def test_the_metadata_says_what_pyproject_says(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    fields = email.message_from_bytes(archive.read(metadata))
    assert fields["Name"] == "sluice-delta"
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == ">=3.10"
    needed = {requirement for requirement in fields.get_all("Requires-Dist", []) if "extra ==" not in requirement}
    assert not [
        each for each in needed if re.match(r"(?i)(pyspark|moto|deltalake|polars|pandas|numpy|duckdb|prompt|starlette|uvicorn)\b", each)
    ]
    assert {"azure", "sql", "spark", "sasl", "metrics", "console", "tracing", "dev", "demo", "test", "bench", "check", "docs"} == set(
        fields.get_all("Provides-Extra", [])
    )


def test_a_jobs_own_modules_neither_hide_ours_nor_are_hidden(installed: Path, tmp_path: Path) -> None:
    for name in ("storage", "coordinator", "spark_integration"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    code = "import storage, coordinator, spark_integration, sluice\n"
    code += "assert storage.MINE and coordinator.MINE and spark_integration.MINE\n"
    code += "print(sluice.__file__)"
    said = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert Path(said.strip()).is_relative_to(installed)


def test_sluice_imports_without_the_extras(installed: Path, tmp_path: Path) -> None:
    """Somebody who only appends Arrow data has no PySpark; nobody in production has moto."""
    (tmp_path / "block.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'pyspark', 'py4j', 'moto', 'deltalake', 'polars', 'pyiceberg'}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    (tmp_path / "use.py").write_text(
        "import block, sluice\n"
        "for name in sluice.__all__:\n"
        "    try:\n"
        "        getattr(sluice, name)\n"
        "    except ImportError as error:\n"
        "        with_spark = {'Stream', 'configure', 'read', 'sql', 'stream', 'unroute', 'use_session'}\n"
        "        assert name in with_spark and '[spark]' in str(error), (name, error)\n"
        "print(sluice.__version__)\n"
    )
    said = run(sys.executable, "use.py", cwd=tmp_path, PYTHONPATH=str(installed))
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", said.strip())


def test_the_command_is_installed_and_explains_itself(installed: Path, tmp_path: Path) -> None:
    said = run(installed / "bin" / "sluice", "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    assert "Usage: sluice" in said
