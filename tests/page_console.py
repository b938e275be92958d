"""Pastes the Python blocks of a page into one interactive session: `python page_console.py PAGE BLOCKS REQUIREMENT..`.

BLOCKS is a JSON list of [text, line of the page]. The requirements are what the page says to install: imports of other packages
fail as they do for that reader. An interactive session ends a compound statement at an empty line and nowhere else.
"""

from __future__ import annotations

import ast
import code
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__: list[str] = []


class Session(code.InteractiveConsole):
    """An interactive session that ends at the first error, whose traceback points into the page."""

    def __init__(self, page: str, space: dict[str, Any]) -> None:
        super().__init__(space, filename=page)
        self.line = 1

    def paste(self, text: str, line: int) -> None:
        """Paste a block that begins on this line of the page, and press Enter."""
        self.line = line
        for number, each in enumerate([*text.splitlines(), ""], line):
            if not self.push(each):
                self.line = number + 1
        if self.buffer:
            raise SyntaxError(
                f"the statement that begins on line {self.line} of {self.filename} is not complete: end it with an empty line"
            )

    def runcode(self, code: CodeType) -> None:
        """Run the statement with the lines that it has in the page."""
        tree = ast.Interactive([ast.increment_lineno(each, self.line - 1) for each in ast.parse("\n".join(self.buffer)).body])
        exec(compile(tree, self.filename, "single"), self.locals)

    def showsyntaxerror(self, filename: str | None = None, **_: object) -> None:
        """End the session: the reader sees the same error."""
        error = sys.exc_info()[1]
        assert isinstance(error, SyntaxError)
        raise SyntaxError(f"pasted into a session, line {self.line - 1 + (error.lineno or 1)} of {filename}: {error.msg}")


def installed(requirements: Sequence[str]) -> set[str]:
    """The distributions that pip installs for these requirements."""
    names: set[str] = set()
    seen: set[str] = set()
    waiting = list(requirements)
    while waiting:
        text = waiting.pop()
        if text in seen:
            continue
        seen.add(text)
        requirement = Requirement(text)
        names.add(canonicalize_name(requirement.name))
        needed = [Requirement(each) for each in metadata.requires(requirement.name) or ()]
        waiting += [
            f"{each.name}[{','.join(sorted(each.extras))}]"
            for each in needed
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras))
        ]
    return names


class Installed(MetaPathFinder):
    """Finds what Python's own finder of files finds, without the modules of all distributions but these."""

    def find_distributions(self, *context: Any) -> Any:
        """Packages may look for their own versions."""
        return PathFinder.find_distributions(*context)

    def __init__(self, distributions: set[str]) -> None:
        owners = metadata.packages_distributions()
        self.missing = {module for module, names in owners.items() if distributions.isdisjoint(map(canonicalize_name, names))}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Nothing for a module that the page does not say to install."""
        return None if fullname.partition(".")[0] in self.missing else PathFinder.find_spec(fullname, path, target)


def main(page: str, blocks: str, *requirements: str) -> None:
    """Run a page. An error ends the program as it ends a script: with a traceback and the status 1."""
    sys.meta_path[sys.meta_path.index(PathFinder)] = Installed(installed(requirements))
    session = Session(page, {"__name__": "__main__"})
    try:
        for text, line in json.loads(blocks):
            session.paste(text, line)
    finally:
        if "pyspark" in sys.modules:  # the JVM may be another program's next
            from pyspark import SparkContext

            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
