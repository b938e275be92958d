"""Input from a terminal, statements and orders to the shell; with history and completion if prompt_toolkit is there, else plain lines."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ..statements.duckdb.database import LocalRequest
from ..statements.parse.cursor import Cursor, is_complete, tokens_of, words_in
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
        return re.split(r"[^\w.`]", before)[-1]

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


QUIT: Final = "quit"
HELP: Final = "help"
TIMING: Final = "timing"
EXPANDED: Final = "expanded"
_ORDERS: Final = {
    **dict.fromkeys(("\\q", "quit", "exit"), QUIT),
    **dict.fromkeys(("\\help", "\\h", "\\?", "help", "?"), HELP),
    "\\timing": TIMING,
    "\\x": EXPANDED,
}
HELP_TEXT: Final = """\
statements end with ; and may take several lines:
  SHOW NAMESPACES; SHOW TABLES IN sales; DESCRIBE sales.orders; SELECT * FROM sales.orders LIMIT 5;
  USE sales;  names without a namespace are those of sales from then on
a table without a name is written by its location: SELECT * FROM sluice.`/a/path`;
\\help, help or ?  this text
\\x                each row as a list of its columns, or rows as lines of a table again
\\timing           leave out how long a statement took, or say it again
\\q, quit or exit  end the shell, also in the middle of a statement"""


def order_in(text: str) -> str | None:
    """The order that a text is, or its last line if that begins with a backslash; None for SQL."""
    lines = text.strip().splitlines() or [""]
    last = lines[-1].strip().rstrip(";").strip().lower()
    return _ORDERS.get(last) if len(lines) == 1 or last.startswith("\\") else None


_PROMPT: Final = "sluice> "
_MORE: Final = "     -> "


def typed(completing: Completing) -> Iterator[str]:
    """Texts of one or more whole statements, and orders other than to quit, which ends them, as the end of the input does."""
    ask = _with_toolkit(completing) if importlib.util.find_spec("prompt_toolkit") is not None else _plainly
    while True:
        try:
            text = ask()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if order_in(text) == QUIT:
            return
        if text.strip():
            yield text


def _plainly() -> str:
    lines = [input(_PROMPT)]
    while not _ends("\n".join(lines)):
        lines.append(input(_MORE))
    return "\n".join(lines)


def _ends(text: str) -> bool:
    return is_complete(text) or order_in(text) is not None


def _history() -> Path | None:
    """The file with the history of statements, below SLUICE_HOME; None where none can be written."""
    home = Path(os.environ.get("SLUICE_HOME") or "~/.sluice").expanduser()
    path = home / "sql_history"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            return path
    except OSError:
        return None


def _with_toolkit(completing: Completing) -> Callable[[], str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.lexers import PygmentsLexer

    class _Completer(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
            begun = completing.begun(document.text_before_cursor)
            for each in completing.candidates(document.text, begun):
                yield Completion(each, start_position=-len(begun))

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if _ends(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    path = _history()
    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if path is None else FileHistory(str(path)),
        completer=_Completer(),
        complete_while_typing=False,
        lexer=PygmentsLexer.from_filename("typed.sql") if importlib.util.find_spec("pygments") is not None else None,
        key_bindings=keys,
        multiline=True,
        prompt_continuation=_MORE,
    )
    return lambda: session.prompt(_PROMPT)
