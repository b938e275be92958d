"""A copy of the repository in which checks are taken out: nothing is ever changed in the repository itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

from .checks import points_below, switched_off

__all__ = ["ROOT", "Copy", "copy_of"]

ROOT = Path(__file__).resolve().parent.parent.parent


class Copy:
    """A copy of the source tree in a folder of its own. Used by one thread at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that works on this copy and on no other."""
        path = os.pathsep.join([str(self.root / "src"), str(self.root)])
        return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}

    @contextmanager
    def without(self, check: str) -> Iterator[None]:
        """The copy with this check switched off while the block runs. Raises ValueError if that cannot be done."""
        changed = switched_off(check, points_below(self.root / "src"))
        before = {path: path.read_text() for path in changed}
        try:
            for path, content in changed.items():
                self._write(path, content)
            yield
        finally:
            for path, content in before.items():
                self._write(path, content)

    @staticmethod
    def _write(path: Path, content: str) -> None:
        path.write_text(content)
        # Python compares times in whole seconds and sizes: what was compiled a moment ago may pass for the new one.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def copy_of(repository: Path, to: Path) -> Copy:
    """Copy the files that git keeps, or would keep, as they stand now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=repository, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\0"):
        source, target = repository / name, to / name
        if not name or not (source.is_file() or source.is_symlink()):
            continue  # deleted and not committed yet
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    return Copy(to)
