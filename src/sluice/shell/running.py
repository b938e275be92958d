"""The shell: reads statements, runs them, and prints their results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa

from ..statements.duckdb.database import LocalRequest
from ..statements.parse.cursor import statements_in, tokens_of
from ..storage.errors import InvalidRequest, SluiceError
from .engines import Engines, Result
from .printing import as_csv, as_json, console_on, draw
from .prompting import EXPANDED, HELP, HELP_TEXT, TIMING, Completing, order_in, typed

_WRONG: Final = 2
_FAILED: Final = 1


class Shell:
    """One run of `sluice sql`."""

    def __init__(
        self,
        engines: Engines,
        texts: Sequence[str] = (),
        files: Sequence[Path] = (),
        form: str | None = None,
        max_rows: int = 1000,
        out: TextIO | None = None,
    ) -> None:
        """`texts` are statements to carry out, and then those in `files`. Without both they come from standard input, or are typed.

        `form` says how results are printed: "json", "csv", or None for tables of at most `max_rows` rows.
        """
        self._engines = engines
        self._texts = texts
        self._files = files
        self._form = form
        self._max_rows = max_rows
        self._out = sys.stdout if out is None else out
        self._console = console_on(self._out)
        self._told = console_on(sys.stderr)
        self._expanded = False
        self._timed = True
        engines.tell = self._tell

    def run(self) -> int:
        """Carry everything out; returns the exit status."""
        try:
            if self._texts or self._files or not sys.stdin.isatty():
                return next((status for text in self._scripts() if (status := self._script(text)) != 0), 0)
            self._tell("sluice sql: statements end with ; help shows what else there is, quit ends the shell")
            engines = self._engines
            completing = Completing(lambda text: LocalRequest(text, None, engines.coordinator, engines.storage_options))
            for text in typed(completing):
                if not self._obey(text):
                    self._script(text)
                completing.forget()
            return 0
        except SluiceError as error:
            return self._fail(error)
        finally:
            self._engines.close()

    def _scripts(self) -> Iterator[str]:
        """The texts of -e, then those of -f; standard input if there are neither."""
        yield from self._texts
        for path in self._files or ([] if self._texts else [Path("-")]):
            try:
                yield sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidRequest(f"{path} cannot be read: {error}; name a file of SQL in UTF-8") from error

    def _obey(self, text: str) -> bool:
        """Carry out an order to the shell; whether the text is one."""
        order = order_in(text)
        if order == HELP:
            self._tell(HELP_TEXT)
        elif order == TIMING:
            self._timed = not self._timed
            self._tell(f"timing is {'on' if self._timed else 'off'}")
        elif order == EXPANDED:
            self._expanded = not self._expanded
            self._tell(f"rows are {'lists of their columns' if self._expanded else 'lines of a table, where it fits'}")
        return order is not None

    def _used(self, text: str) -> bool:
        """Carry out USE; whether the text is that."""
        tokens = [each for each in tokens_of(text) or () if each.upper != ";"]
        if not tokens or tokens[0].upper != "USE":
            return False
        *_, name = tokens
        if [each.upper for each in tokens[1:-1]] not in ([], ["NAMESPACE"], ["SCHEMA"], ["DATABASE"]) or not name.names or len(tokens) == 1:
            raise InvalidRequest("USE takes the name of a namespace: USE sales")
        self._engines.use(name.value)
        self._tell(f"-- names without a namespace are those of {name.value}")
        return True

    def _script(self, text: str) -> int:
        """Carry out the statements of a text, up to the first error; returns the exit status."""
        for span in statements_in(text):
            begin = text.rfind("\n", 0, span.start) + 1
            above = "\n" * text.count("\n", 0, begin) + " " * (span.start - begin)  # errors name lines and columns of the whole text
            try:
                if self._used(span.of(text)):
                    continue
                with self._told.status("running") if self._told.is_terminal else nullcontext():
                    result = self._engines.run(above + span.of(text))
                    written = self._engines.written(span.of(text))
                self._print(result, written)
            except KeyboardInterrupt:
                self._tell("interrupted")
                return _FAILED
            except Exception as error:
                if not (isinstance(error, SluiceError) or any(each.__name__ == "PySparkException" for each in type(error).__mro__)):
                    raise
                return self._fail(error)
        return 0

    def _tell(self, message: str, style: str | None = None) -> None:
        """Say something on standard error, in lines as they are."""
        self._told.print(message, soft_wrap=True, style=style)

    def _print(self, result: Result, written: str) -> None:
        rows: pa.Table = result.rows
        if self._form == "json":
            self._write(as_json(rows))
        elif self._form == "csv":
            self._write(as_csv(rows))
        else:
            draw(self._console, rows, self._max_rows, expanded=self._expanded)
        count = f"{rows.num_rows} row{'' if rows.num_rows == 1 else 's'}, " if rows.num_columns else ""
        why = f" ({result.why})" if result.why else ""
        took = f"{result.seconds:.2f} s" if self._timed else ""
        self._tell(f"-- by {result.engine}{why}: {written}{count}{took}".removesuffix(", ").removesuffix(": "))

    def _write(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._out.write(line + "\n")
        self._out.flush()

    def _fail(self, error: Exception) -> int:
        """Say what is wrong; the exit status says whether the statement must be changed."""
        self._tell(f"sluice: {type(error).__name__}: {str(error).partition('JVM stacktrace')[0].rstrip()}", "red")
        kinds = {each.__name__ for each in type(error).__mro__}
        return _WRONG if isinstance(error, InvalidRequest) or kinds & {"AnalysisException", "ParseException"} else _FAILED
