"""What continuous integration says of tests that fail, with the real script and make, and few tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MAKEFILE = "check:\n\t@true\ntest:\n\t@{python} -m pytest -p no:xdist $(subst -n 0,,$(ARGS)) tests\n"

TESTS = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({always}))
def test_that_fails(number):
    assert False

@pytest.mark.parametrize("number", range({once}))
def test_that_fails_once(number):
    seen = Path(__file__).with_name(f"seen-{{number}}")
    was_there, _ = seen.exists(), seen.touch()
    assert was_there

def test_that_passes():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("always", "once", "status", "closing"),
    [
        (0, 0, 0, ["1 passed"]),
        (0, 2, 0, ["unsteady: tests/test_it.py::test_that_fails_once[0]", "unsteady: tests/test_it.py::test_that_fails_once[1]",
                   "2 failed, 1 passed", "2 passed"]),
        (1, 1, 1, ["2 failed, 1 passed", "1 failed, 1 passed"]),
        (0, 6, 1, ["6 failed, 1 passed"]),
    ],
    ids=["good", "unsteady", "bad", "too many"],
)  # fmt: skip
def test_what_passes_at_the_second_try_is_named_and_what_does_not_is_red(
    tmp_path: Path, always: int, once: int, status: int, closing: list[str]
) -> None:
    for name, text in {
        "Makefile": MAKEFILE.format(python=sys.executable),
        "pytest.ini": "[pytest]\n",
        "scripts/require-java": "#!/bin/sh\n",
        "bin/spin": "#!/bin/sh\n",
        "tests/test_it.py": TESTS.format(always=always, once=once),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTEST_ARGS": ""}
    ran = subprocess.run([tmp_path / ".ci" / "run"], text=True, capture_output=True, env=environment, check=False)
    assert ran.returncode == status, ran.stdout + ran.stderr
    said = ran.stdout.partition("== summary\n")[2].splitlines()
    assert len(said) == len(closing), ran.stdout
    assert all(part in line for part, line in zip(closing, said, strict=True)), said
