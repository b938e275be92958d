"""What people type to the shell itself: a backslash and a word, `help`, `?`, `quit` and `exit`."""

from __future__ import annotations

from typing import Final

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
