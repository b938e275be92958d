"""Another release of sluice: a copy of the package with a few texts changed, which runs in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sluice.coordinator import formats

__all__ = ["BEING_COMPILED", "NAMED", "Edit", "Release", "raised", "this_release"]

_ROOT = Path(__file__).resolve().parent.parent
BEING_COMPILED = "*.pyc.*"
"""The name of a file in __pycache__ that another process writes: it gets another name any moment."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that is there once in a file of the package, and what replaces it."""

    file: str
    text: str
    instead: str

    def applied(self, content: str) -> str:
        """The content of the file with the text replaced."""
        assert content.count(self.text) == 1, f"{self.file} has this {content.count(self.text)} times: {self.text!r}"
        return content.replace(self.text, self.instead)


NAMED: Sequence[Edit] = (Edit("installation.py", '__version__ = "0.1.0"', '__version__ = "0.2.0"'),)
"""What makes it another release, and nothing more."""


def raised(constant: str) -> Sequence[Edit]:
    """The edits that raise one of the numbers in `formats.py` by 1."""
    number = getattr(formats, constant)
    return (*NAMED, Edit("coordinator/formats.py", f"{constant}: Final = {number}\n", f"{constant}: Final = {number + 1}\n"))


@dataclass(frozen=True, slots=True)
class Release:
    """A package to run programs with."""

    source: Path

    @staticmethod
    def changed(folder: Path, edits: Sequence[Edit]) -> Release:
        """A copy of this package below `folder`, with these texts changed; what others of its modules are compiled to is copied, too."""
        source = folder / "src"
        shutil.copytree(_ROOT / "src", source, ignore=shutil.ignore_patterns(BEING_COMPILED))
        for each in edits:
            file = source / "sluice" / each.file
            file.write_text(each.applied(file.read_text()))
        return Release(source)

    def write(self, order: dict[str, object], *, dies_at: str = "") -> list[str]:
        """Run `tests.tables.writer_program`; what it prints. With `dies_at` it must kill itself at that failure point."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.source), str(_ROOT)])}
        if dies_at:
            environment["SLUICE_FAILPOINT"] = dies_at
        program = [sys.executable, "-m", "tests.tables.writer_program", json.dumps(order)]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == (-signal.SIGKILL if dies_at else 0), f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.split()


def this_release() -> Release:
    """The package that the tests import."""
    return Release(_ROOT / "src")
