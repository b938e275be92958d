"""Input from a terminal: with history and completion if prompt_toolkit is installed, else plain lines."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ..statements.parse.cursor import is_complete
from .completing import Completing
from .orders import QUIT, order_in

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


def _lexer() -> Any:
    """Colours for SQL, if pygments is installed."""
    if importlib.util.find_spec("pygments") is None:
        return None
    from prompt_toolkit.lexers import PygmentsLexer

    return PygmentsLexer.from_filename("typed.sql")


def _with_toolkit(completing: Completing) -> Callable[[], str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings

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
        lexer=_lexer(),
        key_bindings=keys,
        multiline=True,
        prompt_continuation=_MORE,
    )
    return lambda: session.prompt(_PROMPT)
