"""Ten wrong values for each argument of public names, commands, options, addresses and properties: refused before anything is done."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

import sluice
import sluice.delta
from sluice.cli import main
from sluice.coordinator.service.address import _OPTIONS as ADDRESS_OPTIONS
from sluice.coordinator.service.address import Address
from sluice.spark_integration.option_tables import ONLY_STREAMING, READING, STREAMING, WRITING
from sluice.spark_integration.options import ReadOptions, WriteOptions
from sluice.spark_integration.stream_options import StreamReadOptions
from sluice.storage.stores.storage_options import StorageOptions
from sluice.tables.client.property_rules import PROPERTIES, check_asked

NAN, FAR = float("nan"), 10**400
ODD: tuple[Any, ...] = (b"x", object(), {1: 2}, {"a"}, True, 1.5, NAN, -1.5, [None], lambda: 0)
"""What neither a text nor a whole number nor a list of names is."""
NO_TEXT: tuple[Any, ...] = (5, *ODD, [], ("a",), "\ud800")
NO_TIME: tuple[Any, ...] = ("1", -1, -0.1, NAN, float("inf"), -float("inf"), 1e300, True, b"1", [1], {}, object())
NO_NUMBER: tuple[Any, ...] = ("1", 1.0, 1.5, NAN, True, FAR, -FAR, 2**70, b"1", [1], {}, object())
NO_FLAG: tuple[Any, ...] = ("true", "", 0, 1, 1.0, b"1", [], {}, object(), ["x"], NAN)
NO_PATH: tuple[Any, ...] = (5, "", " ", "\ud800", "a\0b", *ODD)
NO_NAMES: tuple[Any, ...] = (5, *(each for each in ODD if each != {"a"}), [5], ["a", None], ("a", b"b"))
NO_PAIRS: tuple[Any, ...] = (5, "a=b", *ODD, {"a": 1}, {1: "a"}, {"a": None}, [("a", "b")], {"\ud800": "a"}, {"a": "\udfff"})
NO_OBJECT: tuple[Any, ...] = (5, "", b"x", True, 1.5, NAN, [], {}, object(), (1, 2))
NO_CALL: tuple[Any, ...] = (5, "f", b"x", True, 1.5, NAN, [], {}, object(), (1, 2))
NO_APPLICATION: tuple[Any, ...] = (
    *("a", ("a",), ("a", "1"), (1, "a"), ("a", -1), ("a", 2**63), ("a", True), ("", 1), ["a", 1.5]),
    *(5, {}, object()),
)
NO_EXPRESSION: tuple[Any, ...] = (5, b"x", True, 1.5, NAN, [], {}, object(), (1, 2), ["a"])

BY_ANNOTATION: dict[str, tuple[Any, ...]] = {
    "str": NO_TEXT,
    "bool": NO_FLAG,
    "int": NO_NUMBER,
    "Moment": ("then", "", 1.5, NAN, True, FAR, b"1", [1], {}, object(), "2026-13-01"),
    "float": NO_TIME,
    "Timeout": NO_TIME,
    "str | os.PathLike[str]": NO_PATH,
    "Named": NO_PATH,
    "Table | str | os.PathLike[str]": NO_PATH,
    "Sequence[Named]": NO_NAMES,
    "Sequence[Table | str | os.PathLike[str]]": NO_NAMES,
    "Sequence[str]": ("a", *NO_NAMES),
    "Iterable[str]": ("a", *NO_NAMES),
    "str | Sequence[str]": NO_NAMES,
    "tuple[str, ...]": ("a", *NO_NAMES),
    "Sequence[Target]": ("a", *(each for each in NO_NAMES if each != {"a"}), []),
    "Sequence[NewColumn]": ("a", *NO_NAMES),
    "Sequence[ColumnChange]": ("a", *NO_NAMES),
    "Mapping[str, str]": NO_PAIRS,
    "dict[str, str]": NO_PAIRS,
    "Mapping[Any, int]": (5, "a", b"x", True, 1.5, [], object(), {1: 1}, {"a": "1"}, {"a": 1.5}, {"a": True}, {"": 1}),
    "tuple[str, int]": NO_APPLICATION,
    "int | str": ("huge", "", 0, -1, 1.5, NAN, True, FAR, "9" * 400, [], {}),
    "int | ChangePlace": NO_NUMBER,
    "str | Predicate": NO_TEXT,
    "str | Column": NO_EXPRESSION,
    "str | Sequence[str] | Column": NO_EXPRESSION[:5],
    "str | StructType": NO_EXPRESSION,
    "Expression": NO_EXPRESSION,
    "Assignments": tuple(each for each in NO_EXPRESSION if each != {}),
    "Mapping[str, Any] | Sequence[Any]": NO_EXPRESSION[:5],
    "bool | Mapping[str, str | Column]": ("a", 5, b"x", 1.5, NAN, [], object(), (1,), ["a"], {"a"}),
    "Sequence[str] | SparkStruct": ("a", *NO_NAMES),
    "Rows | ForeignRows": ("a", 5, b"x", 1.5, NAN, True, {}, {"a": 1}, object(), False),
    "Rows": ("a", 5, b"x", 1.5, NAN, True, {}, {"a": 1}, object(), False),
}
OBJECTS = (
    *("pa.Schema", "pa.Schema | StructType", "StructField | pa.Field", "pa.DataType", "SparkSession", "SparkSession.Builder", "DataFrame"),
    *("OpenTransaction[Any]", "Limits", "Consumer", "Replaced", "Table"),
)
NOT_FOR_USERS = {
    *("access", "plan", "files", "priority", "lost", "snapshot", "store", "pin", "place", "selection", "batch", "outputs", "shown"),
    *("foreign", "by_engine", "commit", "committed", "filed_after", "once", "numbered_since", "leases", "applications", "clock"),
    *("operation", "change", "write", "home", "request", "alias", "application"),
}
"""Parameters that only sluice's own floors fill; `application` of a consumer is one, and its own cases are below."""
ANSWERS = (
    *("Analysis", "ChangeBatch", "Commit", "CommitInfo", "ConsumerState", "Diagnosis", "DropReport", "DroppedTable", "Follower"),
    *("Health", "HistoryEntry", "LeaseOn", "NamedTable", "Namespace", "Outcome", "Recovered", "RecoveryReport", "TableDetail"),
    *("VacuumReport", "WritePlan", "Deadline", "Status"),
)
"""Classes that callers get and never make."""


def public() -> Iterator[tuple[str, Callable[..., object], inspect.Parameter]]:
    """Every parameter of every public function and method."""
    names = [(name, getattr(sluice, name)) for name in vars(sluice)["__all__"] if name not in ANSWERS] + [
        ("DeltaTable", sluice.delta.DeltaTable)
    ]
    for name, member in names:
        if not inspect.isclass(member):
            if callable(member):
                yield from ((name, member, each) for each in inspect.signature(member).parameters.values())
        elif not issubclass(member, BaseException):
            made = [("()", member)] if name in ("Catalog", "JointTransaction", "NewColumn", "ColumnChange", "ChangePlace") else []
            for method, function in made + [each for each in inspect.getmembers(member, callable) if not each[0].startswith("_")]:
                for each in list(inspect.signature(function).parameters.values()):
                    yield f"{name}.{method}", function, each


def cases() -> Iterator[Any]:
    for where, function, parameter in public():
        kind = str(parameter.annotation).strip("'")
        may_be_none = bool(re.search(r"(^|\| )None$", kind))
        kind = kind.removesuffix(" | None")
        if parameter.name in ("self", "cls") or parameter.name in NOT_FOR_USERS:
            continue
        wrong = BY_ANNOTATION.get(kind)
        if kind == "int | str" and parameter.name == "timestamp":
            wrong = NO_NUMBER[1:]
        if parameter.name == "partition_by":  # the name of one column will do
            wrong = BY_ANNOTATION["str | Sequence[str]"]
        if kind == "Any":
            wrong = BY_ANNOTATION["Rows"] if parameter.name == "rows" else NO_OBJECT[2:]
        elif kind.startswith("Callable["):
            wrong = NO_CALL
        elif kind in OBJECTS:
            wrong = NO_OBJECT
        yield pytest.param(function, parameter, wrong, may_be_none, id=f"{where}-{parameter.name}")


@pytest.mark.parametrize(("function", "parameter", "wrong", "may_be_none"), list(cases()))
def test_a_wrong_argument_is_refused_before_anything_is_done(
    function: Any, parameter: inspect.Parameter, wrong: tuple[Any, ...] | None, may_be_none: bool
) -> None:
    assert wrong is not None, f"say above which values {parameter.name}: {parameter.annotation} must refuse"
    nothing = object()  # whatever is done with it instead of a table fails
    is_method = next(iter(inspect.signature(function).parameters), "") == "self"
    for value in (*wrong, *(() if may_be_none or parameter.default is None or parameter.name == "sparkSession" else (None,))):
        many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        only = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        given = ([] if only else fillers(function)) + [value] if many or only else []
        named = {} if many or only else {parameter.name: value}
        with pytest.raises(sluice.errors.InvalidRequest) as refused:
            function(*[nothing] * is_method, *given, **named)
        assert parameter.name in refused.value.message, value
        assert isinstance(refused.value, (sluice.errors.InvalidArgument, sluice.errors.PredicateError))
        assert len(refused.value.message) < 600


def fillers(function: Any) -> list[Any]:
    """Valid values for what comes before `*args`."""
    return [
        None if each.name == "first" else (lambda *_: None)
        for each in inspect.signature(function).parameters.values()
        if each.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY) and each.name != "self"
    ]


# -- texts -----------------------------------------------------------------------------------------------------------------

WRONG_NUMBERS = ("", "x", "-5", "1.5.1", "nan", "inf", "9" * 400, "0x10", "1e400", "١٢", "true", "1 2")
NUMBERS = {
    *("versionAsOf", "loadedVersion", "startingVersion", "endingVersion", "maxRecordsPerFile", "readVersion", "ifVersion"),
    *("txnVersion", "commitTimeout", "maxFilesPerTrigger", "maxBytesPerTrigger", "pollInterval"),
}
CHOICES = {
    *("consistency", "readChangeFeed", "optimizeWrite", "mergeSchema", "overwriteSchema", "allowNonEmpty", "partitionOverwriteMode"),
    *("ack", "compression", "ignoreDeletes", "ignoreChanges", "skipChangeCommits", "failOnDataLoss", "withEventTimeOrder"),
}
TEXTS = {
    *("path", "coordinator", "application", "where", "replaceWhere", "readWhere", "partitionBy", "clusterBy", "userMetadata"),
    *("excludeRegex", "eventTimeColumn", "schemaTrackingLocation", "isolation", "lease", "idempotencyKey", "txnAppId", "properties"),
    *("timestampAsOf", "startingTimestamp", "endingTimestamp"),
}
BESIDE = {
    "endingVersion": {"readChangeFeed": "true", "startingVersion": "0"},
    "startingVersion": {"readChangeFeed": "true"},
    "txnVersion": {"txnAppId": "a"},
    "pollInterval": {"consistency": "published"},
}


def parse(name: str, value: str) -> object:
    options = {"path": "/t", **BESIDE.get(name, {}), name: value}
    if name in ONLY_STREAMING:
        return StreamReadOptions.parse(options)
    return ReadOptions.parse(options) if name in READING else WriteOptions.parse(options, overwrite=True)


def test_every_option_of_spark_is_covered() -> None:
    assert {*READING, *WRITING, *STREAMING} <= NUMBERS | CHOICES | TEXTS


@pytest.mark.parametrize("name", sorted(NUMBERS | CHOICES))
def test_a_wrong_option_of_spark_is_refused(name: str) -> None:
    for value in WRONG_NUMBERS if name in NUMBERS else ("", "x", "5", "yes", "null", "nope", "[]", "truefalse", "-", "9" * 400):
        with pytest.raises(sluice.errors.InvalidRequest, match=name):
            parse(name, value)


@pytest.mark.parametrize(
    "name", sorted({each for names in ADDRESS_OPTIONS.values() for each in names} - {"jars", "ca", "cert", "key", "credentials"})
)
def test_a_wrong_parameter_of_an_address_is_refused(name: str) -> None:
    scheme = "zk://h" if name in ADDRESS_OPTIONS["zk"] else "embedded://"
    for value in WRONG_NUMBERS[:9]:
        with pytest.raises(sluice.errors.InvalidRequest, match=name):
            Address.parse(f"{scheme}/?{name}={value}")


@pytest.mark.parametrize(
    "address", ["", "zk://[::1", "zk://h:99999", "zk://h:x", "zk://,", "embedded://h", "h:2181", "zk://\0", "zk://a@b", "x://"]
)
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest):
        sluice.Table.open("/t", coordinator=address)


@pytest.mark.parametrize("name", ["max_attempts", "path_style", "conditional_put", "endpoint_url"])
def test_a_wrong_storage_option_is_refused(name: str) -> None:
    for value in ("", "x", "-5", "1.5", "nan", "inf", "9" * 400, "yes", "ftp://h", "0"):
        with pytest.raises(sluice.errors.InvalidRequest, match=name):
            StorageOptions.parse({name: value})


FREE = ("sluice.primaryKey", "delta.constraints.<name>")


@pytest.mark.parametrize("name", [each.name.replace("<name>", "x") for each in PROPERTIES if each.name not in FREE])
def test_a_wrong_property_is_refused(name: str) -> None:
    for value in ("", "x", "-5", "1.5", "nan", "inf", "9" * 23, "9" * 400, "[]", "null"):
        with pytest.raises(sluice.errors.InvalidRequest, match=re.escape(name)):
            check_asked({name: value}, creating=True)


@pytest.mark.parametrize("name", ["", " ", "\t"])
def test_a_property_has_a_name(name: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="without a name"):
        check_asked({name: "x"}, creating=True)


# -- the command line --------------------------------------------------------------------------------------------------------


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from commands(command, (*path, name)) if isinstance(command, click.Group) else [((*path, name), command)]


def numeric_options() -> Iterator[Any]:
    for path, command in commands(main):
        for each in command.params:
            kinds = (click.types.FloatParamType, click.types.IntParamType)
            if isinstance(each, click.Option) and (
                isinstance(each.type, kinds) or hasattr(each.type, "rule") or each.name == "coordinator"
            ):
                yield pytest.param(path, command, each, id=f"{' '.join(path)} {each.opts[0]}")


@pytest.mark.parametrize(("path", "command", "option"), list(numeric_options()))
def test_a_wrong_option_of_the_command_line_is_refused(path: tuple[str, ...], command: click.Command, option: click.Option) -> None:
    required = [
        [each.opts[0], "x"] if isinstance(each, click.Option) else ["x"] for each in command.params if each.required and each is not option
    ]
    texts = ["", " ", "zk://[::1", "x"] if option.name == "coordinator" else [*WRONG_NUMBERS]
    for text in texts if option.name != "seed" else [each for each in texts if each not in ("-5", "9" * 400, "١٢")]:
        result = CliRunner().invoke(main, [*path, *(word for words in required for word in words), option.opts[-1], text])
        assert result.exit_code == 2, (text, result.output)
        assert isinstance(result.exception, SystemExit), (text, result.exception)
        assert "Traceback" not in result.output
