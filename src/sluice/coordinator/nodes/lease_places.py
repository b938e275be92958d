"""Paths of lease nodes: what leases are taken on, and the names of requests. `lease_records` has the nodes' contents.

Spark's tasks load the options of a write, which name leases, and none of the coordinator's other records.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from ...storage.dataclass import dataclass
from .layout import TABLES, TableTree

NAMES: Final = "/names"

_PREFIX: Final = "l-"
_DIGITS: Final = 10


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """What leases are taken on: a table or a name, given by its node."""

    root: str

    @staticmethod
    def of_table(tree: TableTree) -> Place:
        """A table."""
        return Place(tree.root)

    @staticmethod
    def of_name(name: str) -> Place:
        """A name that is not a table; any text."""
        return Place(f"{NAMES}/{quote(name, safe='').replace('.', '%2E')}")

    @staticmethod
    def of_node(path: str) -> Place | None:
        """The place of a lease's node; None for any other path, since paths come from others' intents."""
        parts = path.split("/")
        proper = len(parts) == 5 and not parts[0] and f"/{parts[1]}" in (TABLES, NAMES) and parts[3] == "leases"
        if not proper or parts[2] in ("", ".", "..") or "\0" in path or LeaseName.parse(parts[4]) is None:
            return None
        return Place("/".join(parts[:3]))

    @property
    def leases(self) -> str:
        """The parent of the requests."""
        return f"{self.root}/leases"

    @property
    def is_table(self) -> bool:
        """Whether it is a table, not just a name."""
        return self.root.startswith(f"{TABLES}/")

    def node(self, name: LeaseName | str) -> str:
        """One request."""
        return f"{self.leases}/{name}"

    def __str__(self) -> str:
        return unquote(self.root.rpartition("/")[2])


@dataclass(frozen=True, slots=True, order=True)
class LeaseName:
    """The name of a request: ZooKeeper's sequence gives the order, the GUID names the call that made it."""

    sequence: int
    guid: str

    @staticmethod
    def parse(name: str) -> LeaseName | None:
        """The parts of a child's name, or None for a node that is not a request."""
        digits, guid = name[-_DIGITS:], name[len(_PREFIX) : -_DIGITS - 1]
        if not name.startswith(_PREFIX) or not (digits.isascii() and digits.isdigit()) or not guid:
            return None
        return LeaseName(int(digits), guid)

    @staticmethod
    def prefix(guid: str) -> str:
        """The prefix that a sequential create completes to a name."""
        return f"{_PREFIX}{guid}-"

    def __str__(self) -> str:
        return f"{_PREFIX}{self.guid}-{self.sequence:0{_DIGITS}d}"
