"""Completions of a word: keywords, tables, namespaces, and columns of the tables in the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..statements.duckdb.request import LocalRequest
from ..statements.parse.cursor import Cursor, tokens_of, words_in
from ..statements.parse.reading import bare, read
from ..statements.parse.relations import relations_in
from ..statements.places import catalog_of, known_place, opened
from ..storage.errors import SluiceError

KEYWORDS: Final = tuple(
    sorted(
        words_in(
            """ADD AFTER ALL ALTER ALWAYS ANALYZE AND ANTI APPLY AS ASC ATOMIC ATTACH ATTEMPTS BEGIN BETWEEN BIGINT BOOLEAN BY CASCADE CASE
            CAST CHECK CLONE CLUSTER COLUMN COLUMNS COMMENT COMPACT COMPUTE CONFLICT CONSTRAINT CONVERT COPY COPY_OPTIONS CREATE CROSS
            DATE DECIMAL DEFAULT DELETE DELTA DESC DESCRIBE DETACH DETAIL DISTINCT DOUBLE DROP DRY ELSE END EVOLUTION EXCEPT EXCLUSIVE
            EXISTS EXPLAIN EXTENDED FALSE FEATURE FILEFORMAT FILES FIRST FOR FORMAT_OPTIONS FROM FSCK FULL GENERATED GROUP HAVING HISTORY
            HOURS IF IN INNER INSERT INT INTERSECT INTERVAL INTO IS ISOLATION JOIN KEY LEFT LEVEL LIKE LIMIT LOCATION LOCK LOCKS MAJOR
            MATCHED MERGE MINOR NAME NAMESPACE NAMESPACES NONE NOT NOWAIT NULL OF OFFSET ON OPTIMIZE OR ORDER OUTER OVER OVERWRITE
            PARTITION PARTITIONED PARTITIONS PATTERN PRIMARY PROPERTIES PURGE QUALIFY QUEUE RENAME REORG REPAIR REPLACE RESTORE RESTRICT
            RETAIN RIGHT RUN SCHEMA SELECT SEMI SERIALIZABLE SET SHALLOW SHARED SHOW SLUICE SNAPSHOT SOURCE STATISTICS STRING TABLE
            TABLES TARGET TBLPROPERTIES THEN TIMESTAMP TO TRANSACTIONS TRUE TRUNCATE UNDROP UNION UNLOCK UNSET UPDATE USING VACUUM VALUES
            VERSION WAIT WHEN WHERE WINDOW WITH WRITE ZORDER"""
        )
    )
)
_PART: Final = frozenset("_.`")


class Completing:
    """Knows the coordinator's names, as they were when `forget` was last called."""

    def __init__(self, request_of: Callable[[str], LocalRequest]) -> None:
        self._asked = request_of
        self._tables: list[str] | None = None

    def forget(self) -> None:
        """Ask for the names again: a statement may have changed them."""
        self._tables = None

    def begun(self, before: str) -> str:
        """The word that is being typed at the end of a text."""
        at = len(before)
        while at > 0 and (before[at - 1].isalnum() or before[at - 1] in _PART):
            at -= 1
        return before[at:]

    def candidates(self, text: str, begun: str) -> list[str]:
        """What the word may become: columns first, then tables, then keywords."""
        if not begun:
            return []
        word = begun.lower()
        qualifier, dot, part = begun.rpartition(".")
        columns = [qualifier + dot + each for each in self._columns(text) if each.lower().startswith(part.lower())]
        names = [each for each in self._names() if each.lower().startswith(word)]
        keywords = [each if begun.isupper() else each.lower() for each in KEYWORDS if each.lower().startswith(word)]
        return list(dict.fromkeys([*columns, *names, *keywords]))

    def _names(self) -> list[str]:
        if self._tables is None:
            try:
                catalog = catalog_of(self._asked(""))
                spaces = [each.name for each in catalog.namespaces()]
                named = [each.full_name for space in spaces for each in catalog.tables(space)]
            except SluiceError:
                return []  # nothing to offer while the coordinator cannot be reached
            self._tables = [*spaces, *named, *(each.removeprefix("default.") for each in named if each.startswith("default."))]
        return self._tables

    def _columns(self, text: str) -> list[str]:
        """The columns of the tables that the text names so far."""
        request, names = self._asked(text), list[str]()
        tokens = tokens_of(text)
        relations = () if tokens is None else relations_in(Cursor(text, tokens))
        target = getattr(bare(read(text)), "target", None)
        for name in [*(each.name for each in relations), *([] if target is None else [target])]:
            try:
                place = known_place(request, name)
                names += [] if place is None else opened(place).struct.names
            except SluiceError:
                continue  # not whole yet
        return names
