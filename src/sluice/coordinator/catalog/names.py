"""Names of tables and namespaces: their syntax, as Spark reads it."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from ...storage.dataclass import dataclass
from ..errors import InvalidName
from ..nodes.catalog_records import DEFAULT, key_of, name_path

NAME_CHARACTERS_MAX: Final = 128
"""The longest name of a table or a namespace, in characters."""

_RESERVED: Final = {
    "global_temp": "Spark keeps temporary views there",
    "information_schema": "SQL reserves it",
    **dict.fromkeys(
        ("avro", "csv", "delta", "iceberg", "json", "orc", "parquet", "sluice", "text"),
        "Spark reads format.`path` as a table at a path",
    ),
}
"""Names that no namespace can have, and why."""

_CATEGORIES: Final = frozenset("LMN")
"""Unicode's letters, their marks, and digits."""
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^`.]*)")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name in its namespace, as spelled. Two spellings that differ in case only mean the same table."""

    namespace: str
    name: str

    @staticmethod
    def parse(text: str) -> TableName:
        """The name that a text like "sales.orders" means; "orders" is in the namespace `default`. Backticks may quote a part.

        Raises InvalidName.
        """
        if not isinstance(text, str) or not text:
            raise InvalidName(f"{text!r} is not the name of a table; write it like 'sales.orders'", name=text)
        parts = _parts(text)
        if len(parts) > 2:
            hint = f"; leave {parts[0]!r} out" if len(parts) == 3 else ""
            raise InvalidName(
                f"{text!r} has {len(parts)} parts; a name has two, namespace.table, or one, which is in {DEFAULT!r}{hint}", name=text
            )
        namespace, name = (DEFAULT, parts[0]) if len(parts) == 1 else parts
        return TableName(check_namespace(namespace, within=text), _checked(name, "table", within=text))

    @property
    def path(self) -> str:
        """The node of this name."""
        return name_path(self.namespace, self.name)

    @property
    def key(self) -> tuple[str, str]:
        """What two spellings of this name have in common."""
        return key_of(self.namespace), key_of(self.name)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


def check_namespace(name: str, *, within: str = "") -> str:
    """The name of a namespace, in its normal form. Raises InvalidName."""
    checked = _checked(name, "namespace", within=within or name)
    reason = _RESERVED.get(key_of(checked))
    if reason is not None:
        raise InvalidName(f"{within or name!r}: no namespace can be called {checked!r}: {reason}; choose another name", name=within or name)
    return checked


def _parts(text: str) -> list[str]:
    """The parts between dots; backticks around a part go."""
    parts: list[str] = []
    at = 0
    while True:
        match = _PART.match(text, at)
        assert match is not None  # the second alternative matches nothing, too
        parts.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end()
        if at == len(text):
            return parts
        if text[at] != ".":
            raise InvalidName(f"{text!r} is not a name: a backtick ends or begins inside a part; quote whole parts", name=text)
        at += 1


def _checked(name: object, what: str, *, within: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidName(f"{within!r}: the name of the {what} is empty; write it like 'sales.orders'", name=within)
    normal = unicodedata.normalize("NFC", name)
    strange = next((each for each in normal if unicodedata.category(each)[0] not in _CATEGORIES and each not in "_-"), None)
    if strange is not None:
        raise InvalidName(
            f"{within!r}: the name of the {what} has the character {strange!r}; use letters, digits, '_' and '-'", name=within
        )
    if len(normal) > NAME_CHARACTERS_MAX:
        raise InvalidName(
            f"the name of the {what} has {len(normal)} characters, {normal[:20]!r}...; use {NAME_CHARACTERS_MAX} at most", name=within
        )
    return normal
