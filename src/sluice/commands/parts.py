"""Options shared by the commands, and printing of results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, Final, TypeVar

import click
import orjson
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress, TaskID

from ..coordinator.api import Address, Deadline, bounding
from ..shell.printing import console_on, draw
from ..storage.arguments import RULES
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..storage.progress import told_to
from ..tables.table import Table

F = TypeVar("F", bound=Callable[..., Any])
_BAR_AFTER_S: Final = 2.0


def pairs(_context: click.Context, _parameter: click.Parameter, given: Iterable[str]) -> dict[str, str]:
    """A repeated `--storage-option name=value` as a mapping."""
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter("one is not name=value, as in region=eu-west-1")  # not shown: it may be a secret
        found[name] = value
    return found


class ListsByItself(click.Group):
    """If the first argument is not a command: `list`, with these arguments; without arguments, too, unless they show the help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with the implied command added."""
        is_told = args[0] in self.commands or args[0] in ctx.help_option_names if args else self.no_args_is_help
        return super().parse_args(ctx, args if is_told else ["list", *args])


class Checked(click.ParamType[Any]):
    """The text of an option, by the rule for the parameter of that name in `storage.arguments`."""

    name = "text"

    def __init__(self, parameter: str) -> None:
        self.rule = RULES[parameter]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value that the text means; ends the command for a text that means none."""
        if not isinstance(value, str):
            return value
        try:
            return self.rule.of_text(param.opts[0] if param else self.name, value)
        except InvalidRequest as error:
            self.fail(error.message, param, ctx)


def address(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """A coordinator's address as it was given, if it is one. Raises InvalidRequest."""
    Address.parse(text)
    return text


def all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


coordinator_option = click.option(
    "--coordinator",
    metavar="ADDRESS",
    envvar="SLUICE_COORDINATOR",
    type=Checked("coordinator"),
    callback=address,
    help="zk://host:2181,.../chroot or embedded://[/directory]; default: SLUICE_COORDINATOR.",
)
storage_option = click.option(
    "--storage-option",
    "storage_options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="A setting of the S3 store, such as endpoint_url or region; may be repeated. Defaults come from the environment.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@dataclass(frozen=True, slots=True)
class At:
    """The table that a command is about."""

    location: str
    coordinator: str | None
    storage_options: Mapping[str, str]

    @property
    def reached(self) -> dict[str, Any]:
        """How it is reached, as keywords of `sluice.Table` and the functions beside it."""
        return {"coordinator": self.coordinator, "storage_options": self.storage_options}

    def open(self) -> Table:
        """The table, for writing."""
        return Table.open(self.location, **self.reached)

    def open_to_read(self) -> Table:
        """The table; without a coordinator it shows what is published, of any Delta table."""
        return Table.open(self.location, **self.reached, consistency="published" if self.coordinator is None else "latest")


def on_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its table `at`, and `as_json`, from the location and the options shared by all."""

    @wraps(command)
    def located(location: str, coordinator: str | None, storage_options: dict[str, str], **given: Any) -> None:
        command(At(location, coordinator, storage_options), **given)

    return all_of(click.argument("location"), coordinator_option, storage_option, json_option)(located)


@contextmanager
def progress_shown(*, quiet: bool) -> Iterator[None]:
    """In the block, a call that takes longer than two seconds draws a bar, if standard error is a terminal."""
    begun_s, tasks = time.monotonic(), dict[str, TaskID]()
    bar = Progress(console=Console(stderr=True), transient=True)

    def draw(done: int, total: int, what: str) -> None:
        if time.monotonic() - begun_s > _BAR_AFTER_S:
            bar.start()
            if what not in tasks:
                tasks[what] = bar.add_task(what)
            bar.update(tasks[what], completed=done, total=total)

    with told_to(draw) if bar.console.is_terminal and not quiet else nullcontext():
        try:
            yield
        finally:
            if tasks:
                bar.stop()


def print_json(content: object) -> None:
    """Print a value as indented JSON."""
    click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless the caller said `--yes`; any other answer than yes ends the command."""
    if not yes:
        click.confirm(question, abort=True, err=True)


def print_facts(facts: object, *, as_json: bool, text: str | None = None) -> None:
    """Print facts as JSON, or as `text` (None: of a mapping a line for each, with spaces in its name)."""
    if as_json:
        print_json(facts)
    elif text is not None or not isinstance(facts, Mapping):
        click.echo(text)
    else:
        for name, value in facts.items():
            if isinstance(value, Mapping):
                for key, text in value.items():
                    click.echo(f"{name}: {key} = {text}")
            else:
                click.echo(f"{name.replace('_', ' ')}: {'unknown' if value is None else value}")


def print_grid(keys: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool = False, **headings: str) -> None:
    """Print the rows' values of these keys, or "none"; as JSON, the rows themselves.

    A column's heading is its key with spaces, unless `headings` has another. It is of numbers, or of texts if one value is another.
    """
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("none")
        return
    columns: dict[str, pa.Array] = {}
    for key in keys:
        values = [row[key] for row in rows]
        numbers = all(each is None or type(each) is int for each in values)
        shown = values if numbers else [None if each is None else str(each) for each in values]
        columns[headings.get(key, key.replace("_", " "))] = pa.array(shown, pa.int64() if numbers else pa.string())
    draw(console_on(sys.stdout), pa.table(columns), len(rows), null="")


timeout_option: Final = click.option(
    "--timeout", "timeout_s", type=Checked("seconds"), metavar="SECONDS", help="Maximum time; no limit by default."
)


def within(timeout_s: float | None) -> AbstractContextManager[Deadline | None]:
    """The deadline of a command, if it has one; requests to the coordinator in the block end with it."""
    return nullcontext() if timeout_s is None else bounding(timeout_s)
