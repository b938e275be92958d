"""Where the nodes of leases are: what leases are taken on, and the names of requests. What the nodes hold is in `lease_records`.

Spark's tasks load the options of a write, which name leases, and nothing else of the coordinator's records.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from ...storage.dataclass import dataclass
from .layout import TABLES, TableTree

__all__ = ["NAMES", "LeaseName", "Place"]

NAMES: Final = "/names"

_PREFIX: Final = "l-"
_DIGITS: Final = 10


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """What leases are taken on: a table or a name, by the node that stands for it."""

    root: str

    @staticmethod
    def of_table(tree: TableTree) -> Place:
        """A table."""
        return Place(tree.root)

    @staticmethod
    def of_name(name: str) -> Place:
        """A name that is no table; any text."""
        return Place(f"{NAMES}/{quote(name, safe='').replace('.', '%2E')}")

    @staticmethod
    def of_node(path: str) -> Place | None:
        """The place of a lease's node, or None for a path that is none: such paths come from others' intents."""
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
        """Whether it is a table and not just a name."""
        return self.root.startswith(f"{TABLES}/")

    def node(self, name: LeaseName | str) -> str:
        """One request."""
        return f"{self.leases}/{name}"

    def __str__(self) -> str:
        return unquote(self.root.rpartition("/")[2])


@dataclass(frozen=True, slots=True, order=True)
class LeaseName:
    """The name of a request: ZooKeeper's sequence gives the order, the GUID tells which call made it."""

    sequence: int
    guid: str

    @staticmethod
    def parse(name: str) -> LeaseName | None:
        """The parts of a child's name, or None for a node that is no request."""
        digits, guid = name[-_DIGITS:], name[len(_PREFIX) : -_DIGITS - 1]
        if not name.startswith(_PREFIX) or not (digits.isascii() and digits.isdigit()) or not guid:
            return None
        return LeaseName(int(digits), guid)

    @staticmethod
    def prefix(guid: str) -> str:
        """What a sequential create completes to a name."""
        return f"{_PREFIX}{guid}-"

    def __str__(self) -> str:
        return f"{_PREFIX}{self.guid}-{self.sequence:0{_DIGITS}d}"
