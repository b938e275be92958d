"""The one table of what arguments may be: those of the Python API, the command line, Spark's options, addresses and properties.

`checked` puts the checks in front of a public function, or of all public methods of a class, so that a wrong argument is refused before
anything is done. Texts (an option, a property, a parameter of an address) are read by the same rules. What only a table can tell,
such as whether a column exists, is checked where the table is read.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import chain
from operator import methodcaller
from typing import Any, Final, TypeVar, cast

from .dataclass import dataclass
from .errors import Corrupt, InvalidArgument, InvalidRequest, InvariantBroken, PredicateError, SluiceError

_A = TypeVar("_A")
_SHOWN_MAX: Final = 200
_TRACEBACKS: Final = "SLUICE_TRACEBACKS"
"""The environment variable that keeps all frames of every error ("full"). Without it a refusal shows the call and what to do, and no
frames inside sluice; what sluice may be to blame for, and what is damaged, always keeps them."""
_MAY_BE_NONE: Final = re.compile(r"(^|\| )None$")
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmgt]?)i?b?", re.IGNORECASE)
_NO_PARTS: Final = frozenset({"", ".", ".."})
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Rule:
    """What values an argument may have. `what` completes "give ..."; `parse` reads a text; a secret is not shown."""

    what: str
    holds: Callable[[Any], bool]
    parse: Callable[[str], Any] = str
    error: type[InvalidRequest] = InvalidArgument
    secret: bool = False

    def check(self, name: str, value: Any, **details: Any) -> None:
        """Raise InvalidRequest for a wrong value of the argument called `name`."""
        if not self.holds(value):
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            kind = f" of type {type(value).__name__}" if self.secret or not is_number else ""
            shown = "" if self.secret else f" {_shown(value)}"
            wrong = ", which is no text" if self.error is PredicateError and not isinstance(value, str) else ""
            message = f"{name} is{shown}{kind}{wrong}: give {self.what}"
            if self.error is not InvalidArgument:
                raise self.error(message, **details)
            raise InvalidArgument(message, argument=name, **details)

    def of_text(self, name: str, text: str, **details: Any) -> Any:
        """The value that a text means. Raises InvalidRequest for one that means none, or a wrong one."""
        try:
            value = self.parse(text)
        except (ValueError, OverflowError):
            value = None
        if value is None or not self.holds(value):
            raise InvalidRequest(f"{name} is {_shown(text)}: give {self.what}", **details)
        return value


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[: _SHOWN_MAX // 2]}... ({len(shown):,} characters)"


# -- kinds -----------------------------------------------------------------------------------------------------------------


def whole(what: str, least: int, most: int) -> Rule:
    """A whole number within bounds; `what` may be empty where the number needs no word of its own."""

    def parse(text: str) -> int | None:
        return int(text) if re.fullmatch(r"\s*-?[0-9]{1,19}\s*", text) else None

    span = f"{max(least, -1):,} or more" if most >= 2**31 - 1 else f"from {least:,} to {most:,}"
    return Rule(
        f"a whole number, {span}" + (what and f": {what}"),
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
        parse,
    )


def amount(what: str, least: float, most: float, *, above: bool = False) -> Rule:
    """A number within bounds; `above` its least one."""

    def holds(value: Any) -> bool:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return is_number and (least < value if above else least <= value) and value <= most

    span = f"more than {least:g}" if above else f"{least:g} or more"
    number = re.compile(r"\s*[0-9]{1,15}(\.[0-9]{1,9})?\s*")
    return Rule(f"{what}, {span} and at most {most:g}", holds, lambda text: float(text) if number.fullmatch(text) else None)


def text(what: str, least: int = 1, most: int = 1_000_000, *, error: type[InvalidRequest] = InvalidArgument, secret: bool = False) -> Rule:
    """A text that can be written as UTF-8, of so many characters."""
    return Rule(
        what, lambda value: isinstance(value, str) and least <= len(value) <= most and _is_unicode(value), error=error, secret=secret
    )


def one_of(*choices: str) -> Rule:
    """One of these words."""
    return Rule(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices, str.lower)


def listed(what: str, holds: Callable[[Any], bool], *, alone: bool = False, least: int = 0) -> Rule:
    """A list of values, or (`alone`) one of them."""

    def is_list(value: Any) -> bool:
        if alone and holds(value):
            return True
        if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping, os.PathLike)):
            return False
        # What has no length may be used up by a look at its elements.
        return not hasattr(value, "__len__") or (len(elements := list(value)) >= least and all(map(holds, elements)))

    return Rule(what, is_list)


def pairs(what: str, *, secret: bool = False) -> Rule:
    """A mapping of texts to texts."""
    return Rule(what, lambda value: isinstance(value, Mapping) and all(map(_is_text, chain(*value.items()))), secret=secret)


def made(*classes: str, what: str | None = None) -> Rule:
    """An object of a class of one of these names, or of one derived from it: so that this floor imports none of them."""
    return Rule(what or f"a {' or '.join(classes)}", functools.partial(is_made, classes))


def either(what: str, *rules: Rule) -> Rule:
    """A value that one of these rules allows."""
    return Rule(what, lambda value: any(map(methodcaller("holds", value), rules)), error=rules[0].error)


def is_made(classes: tuple[str, ...], value: object) -> bool:
    """Whether a value is of a class of one of these names, or of one derived from it."""
    return not {each.__name__ for each in type(value).__mro__}.isdisjoint(classes)


def _is_unicode(value: str) -> bool:
    return value.isascii() or not re.search("[\ud800-\udfff]", value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and _is_unicode(value)


def _is_place(value: Any) -> bool:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    return isinstance(path, str) and bool(path.strip()) and "\0" not in path and _is_unicode(path)


def _is_moment(value: Any) -> bool:
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        except ValueError:
            return False
        return True
    return isinstance(value, datetime) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < _VERSION_MAX)


def _is_application(value: object) -> bool:
    match value:
        case (str(name), int(number)):
            return bool(name) and _is_unicode(name) and type(number) is int and 0 <= number < 2**63
    return False


def bytes_of(size: str) -> int | None:
    """The bytes that a size like 134217728 or 128mb means; None for no size."""
    found = _SIZE.fullmatch(size.strip())
    return None if found is None else int(found[1]) * _UNITS[found[2].lower()]


def _seconds_of(span: str) -> float | None:
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*([smhd]?)\s*", span)
    return None if match is None else float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _is_bytes(value: object) -> bool:
    size = bytes_of(value) if isinstance(value, str) else value
    return isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= _BYTES_MAX


# -- the table -------------------------------------------------------------------------------------------------------------

_SECONDS_MAX: Final = 1e9
_BYTES_MAX: Final = 2**50
_COUNT_MAX: Final = 2**31 - 1
_VERSION_MAX: Final = 2**63 - 1

_SECONDS: Final = amount("seconds", 0, _SECONDS_MAX)
_SOME_SECONDS: Final = amount("seconds", 0, _SECONDS_MAX, above=True)
_TIME: Final = either(f"seconds, 0 or more and at most {_SECONDS_MAX:g}, or a sluice.Deadline", _SECONDS, made("Deadline"))
_VERSION: Final = whole("a version", -_VERSION_MAX, _VERSION_MAX)  # VersionNotFound tells which there are
_AFTER: Final = whole("the last version you have, -1 for none", -1, _VERSION_MAX)
_FLAG: Final = Rule(
    "true or false", lambda value: isinstance(value, bool), lambda text: {"true": True, "false": False}.get(text.strip().lower())
)
_PLACE: Final = Rule("a path or a URI as a text that is not empty, in Unicode", _is_place)
_TABLE: Final = either("a sluice.Table, or its path or URI", _PLACE, made("TableWrites"))
_NAME: Final = text("a name, a text that is not empty", most=100_000)
_NAMES: Final = listed("a list of names", _is_text)
_NAME_OR_NAMES: Final = listed("a name, or a list of names", _is_text, alone=True)
_CONDITION: Final = text('a condition in SQL as a text, such as "id > 5"', 0, 10_000_000, error=PredicateError)
_SCHEMA: Final = Rule("a pyarrow.schema([...])", lambda value: hasattr(value, "__arrow_c_schema__") or is_made(("StructType",), value))
_SIZE_RULE: Final = Rule("a number of bytes, 1 or more, or a size like 134217728 or 128mb", _is_bytes, bytes_of)
_EXPRESSION: Final = either("an expression; it must be a Spark SQL Column or a string", text("", 0, 10_000_000), made("Column"))
_SESSION: Final = made("SparkSession", what="a SparkSession")
_MOMENT: Final = Rule("a datetime, ISO 8601 text such as '2026-01-31 13:00:00+00:00', or milliseconds since 1970", _is_moment)


def _all_are(rule: Rule, names: str) -> dict[str, Rule]:
    """The same rule for all parameters named in a text."""
    return dict.fromkeys(names.split(), rule)


RULES: Final[Mapping[str, Rule]] = {
    # where things are
    **_all_are(_PLACE, "location target root path"),
    **_all_are(_TABLE, "table *tables *named"),
    **_all_are(listed("a list of tables: of each the sluice.Table, or its path or URI", _TABLE.holds), "tables into"),
    "read_together.tables": listed("a list of at least one table or location", _TABLE.holds, least=1),
    "coordinator": text("an address such as zk://host:2181/chroot or embedded://, as a text that is not empty", secret=True),
    "storage_options": pairs("a mapping of texts to texts, such as {'region': 'eu-west-1'}", secret=True),
    "hadoopConf": pairs("a mapping of texts to texts, such as {'fs.s3a.endpoint': '...'}", secret=True),
    "to": text("the address of a coordinator, such as zk://host:2181/chroot, as a text that is not empty", secret=True),
    "former": text("the id of a coordinator, a text that is not empty"),
    # times
    **_all_are(_TIME, "timeout_s wait_s"),
    **_all_are(_SECONDS, "seconds recover.wait_s recover_all.wait_s restore_tree.wait_s bound_s health.timeout_s status.timeout_s"),
    **_all_are(_SOME_SECONDS, "poll_s window_s"),
    "since_s": Rule("seconds, or a time like 90s, 15m, 2h or 1d; more than 0", _SOME_SECONDS.holds, _seconds_of),
    **_all_are(amount("hours", 0, 1e6), "retain_hours retentionHours doctor_hours"),
    "contention_days": amount("days", 0, 36500),
    # numbers
    "sluice.daemon.vacuumHours": whole("hours", 0, 1_000_000),
    "port": whole("a port; 0 is any free one", 0, 65535),
    "version": _VERSION,
    "read_version": whole("a version", 0, _VERSION_MAX),
    "if_version": whole("a version", -1, _VERSION_MAX),
    **_all_are(
        Rule(
            "a mapping of tables to their versions",
            lambda value: isinstance(value, Mapping) and all(map(_TABLE.holds, value)) and all(map(_VERSION.holds, value.values())),
        ),
        "transaction.if_version JointTransaction.if_version",
    ),
    **_all_are(_AFTER, "after up_to ChangePlace.version"),
    **dict.fromkeys(
        (f"{name}.{edge}" for name in ("changes", "changes_batches", "split_changes") for edge in ("after", "up_to")),
        either("a version, -1 for none, or a time", _AFTER, _MOMENT),
    ),
    **_all_are(
        made("OpenTransaction", what="the transaction that lost, which this one repeats"),
        "begin.after transaction.after JointTransaction.after",
    ),
    "follow.after": either("the last version you have, -1 for none, or the `end` of a batch", _AFTER, made("ChangePlace")),
    "ChangePlace.files": whole("a number of files", 0, _COUNT_MAX),
    "timestamp": _MOMENT,
    "read.timestamp": either(_MOMENT.what, _MOMENT, text("")),
    **_all_are(whole("", 1, _COUNT_MAX), "history.limit attempts parts max_versions max_rows"),
    "max_bytes": whole("a number of bytes", 1, _VERSION_MAX),
    **_all_are(_SIZE_RULE, "target_file_size bytes_per_s"),
    "slots": whole("transactions", 1, _COUNT_MAX),
    "commits_per_s": amount("commits per second", 0, 1e6, above=True),
    **_all_are(whole("a version of the protocol", 1, 3), "reader readerVersion"),
    **_all_are(whole("a version of the protocol", 1, 7), "writer writerVersion"),
    # words
    "ack": one_of("published", "ratified"),
    "consistency": one_of("latest", "serial", "session", "published"),
    "isolation": one_of("Serializable", "WriteSerializable", "SnapshotIsolation"),
    "by": one_of("version", "timestamp"),
    **_all_are(one_of("changes", "inserted"), "consumer.rows follow.rows"),
    **_all_are(one_of("minor", "major", "full"), "compact.mode executeCompaction.mode"),
    "create.mode": one_of("create", "if_not_exists", "or_replace", "replace"),
    **_all_are(one_of("shared", "exclusive"), "lease.mode lease_on.mode"),
    "plan_write.mode": one_of("append", "overwrite", "dynamic"),
    # names and texts
    **_all_are(_NAME, "name new_name namespace drop_id generate.mode NewColumn.after ColumnChange.after"),
    **_all_are(
        Rule("1 to 200 printable characters", lambda value: _is_text(value) and 0 < len(value) <= 200 and value.isprintable()),
        "lease.name lease_on.name consumer.name",
    ),
    **_all_are(_NAMES, "names unset columns NewColumn.path ColumnChange.path"),
    "require_left.application": Rule("(application id, number)", _is_application),
    "application": text("a text that is not empty", most=1000),
    "transaction_id": Rule(
        "the id of a transaction, from `Transaction.id`", lambda value: isinstance(value, str) and _ID.fullmatch(value) is not None
    ),
    **_all_are(text("a text", 0), "comment configuration"),
    "text": text("SQL as a text", 1, 100_000_000),
    "key": text("a text of 1 to 1000 characters that identifies this write", 1, 1000),
    "transaction": Rule("(application id, number), a text that is not empty and a whole number, 0 or more", _is_application),
    "user_metadata": text("a text of at most 8,192 characters", 0, 8 * 1024),
    "properties": pairs("a mapping of names to values; properties are text, both their names and their values"),
    # columns, rows and conditions
    "read.columns": either("a list of names, or a StructType", _NAMES, made("StructType")),
    **_all_are(_NAME_OR_NAMES, "cluster_by cluster_by.columns analyze.columns partition_by z_order_by"),
    "add_columns.columns": listed("a list of sluice.NewColumn", functools.partial(is_made, ("NewColumn",))),
    "changes": listed("a list of sluice.ColumnChange", functools.partial(is_made, ("ColumnChange",))),
    "ColumnChange.type": Rule(
        "a pyarrow type, such as pyarrow.int64()", lambda value: is_made(("DataType",), value) and hasattr(value, "__arrow_c_schema__")
    ),
    "NewColumn.field": made("StructField", "Field", what="a pyarrow.field(...)"),
    "default": text("SQL of a default as a text", 0),
    "sync_identity.column": text("the name of a column"),
    "on": listed("the name of a column, or a list of names", _is_text, alone=True),
    **_all_are(_SCHEMA, "schema partition_schema"),
    "rows": Rule(
        "pyarrow data, a DataFrame, or anything that exports Arrow",
        lambda value: not isinstance(value, (str, bytes, Mapping, int, float, type(None))) and type(value) is not object,
    ),
    "adopt.files": Rule(
        "a list of paths, or a mapping of paths to their partition values; at least one",
        lambda value: (
            isinstance(value, (list, tuple, Mapping))
            and len(value) > 0
            and all(map(_is_place, value))
            and all(isinstance(each, Mapping) for each in (value.values() if isinstance(value, Mapping) else ()))
        ),
    ),
    "where": either(_CONDITION.what, _CONDITION, made("Predicate")),
    "read_where": _CONDITION,
    "set": pairs("a mapping of columns to expressions in SQL, as texts"),
    "targets": listed(
        "a list of at least one table, name, or result of lease_on",
        lambda each: _is_text(each) or is_made(("LeaseOn",), each) or hasattr(each, "lease_on"),
        least=1,
    ),
    # flags
    **_all_are(
        _FLAG,
        "allow_nonempty cascade create deep dry_run fix dynamic first for_update force if_not_exists ignore_missing_files include_foreign "
        "keep_data lose_unpublished merge_schema nullable overwrite_schema replace replaces row_ids routing schema_evolution "
        "truncate_history upkeep whole isShallow truncateHistory",
    ),
    # functions, sessions and frames
    **_all_are(Rule("a function", callable), "work told clauses"),
    **_all_are(_SESSION, "spark session"),
    "sparkSession": either(_SESSION.what, _SESSION, made("NoneType")),  # DeltaTable refuses it
    "builder": made("Builder", what="SparkSession.builder"),
    "df": made("DataFrame"),
    "args": Rule("a mapping or a list", lambda value: isinstance(value, (Mapping, list, tuple))),
    "transaction.consumer": made("Consumer"),
    "transaction.first": either("a Spark session or the coordinator's address", _SESSION, text("")),
    "limits": made("Limits"),
    "replaced": made("Replaced"),
    # parameters of a coordinator's address, and of the S3 store
    **_all_are(_SOME_SECONDS, "retry_s connect_timeout_s"),
    "session_timeout_s": amount("seconds", 0.1, 3600),
    **_all_are(_FLAG, "tls verify_hostname path_style"),
    "auth": one_of("digest", "sasl", "x509"),
    **_all_are(text("the path of a file"), "ca cert key_file credentials"),
    "jars": text("the path of a folder"),
    "max_attempts": whole("a number of attempts", 1, 999),
    "conditional_put": one_of("auto", "true", "false"),
    # Spark's options, where they are not named after a parameter: versionAsOf is `version_as_of`
    **_all_are(whole("a version", 0, _VERSION_MAX), "version_as_of loaded_version ending_version"),
    "starting_version": whole("a version; for a stream also latest", 0, _VERSION_MAX),
    "max_records_per_file": whole("a number of rows", 0, _COUNT_MAX),
    "max_files_per_trigger": whole("a number of files", 1, _COUNT_MAX),
    "max_bytes_per_trigger": _SIZE_RULE,
    "txn_version": whole("a number of a write", 0, _VERSION_MAX),
    **_all_are(_SOME_SECONDS, "commit_timeout poll_interval"),
    # table properties
    "delta.checkpointInterval": whole("a number of versions", 1, 1_000_000_000),
    "delta.dataSkippingNumIndexedCols": whole("a number of columns, -1 for all", -1, 999_999_999),
    "delta.targetFileSize": _SIZE_RULE,
    # Delta's names
    **_all_are(_NAME, "aliasName featureName identifier tableOrViewName colName property.key newest_by"),
    "DeltaTable.timestamp": text("a time as a text, such as 2026-01-31 or 2026-01-31 13:00:00"),
    **_all_are(
        Rule("column names and expressions; it must be a dict", lambda value: isinstance(value, dict)),
        "RowChanges.set DeltaMergeBuilder.set",
    ),
    "partitionSchema": either("a StructType, or columns in SQL as a text", text(""), _SCHEMA),
    "source": made("DataFrame", what="a DataFrame; it must be DataFrame, and cannot be None"),
    "Catalog.source": made("Table"),
    "dataType": either("a DataType, or its name in SQL", text(""), made("DataType")),
    "property.value": text("the value of a property as a text", 0),
    "partitionFilter": text("a condition in SQL as a text"),
    **_all_are(_EXPRESSION, "condition matched_delete"),
    "merge_into.on": either("a condition, or columns", _EXPRESSION, _NAME_OR_NAMES),
    **_all_are(Rule("true, false, or a mapping", lambda value: isinstance(value, (bool, Mapping))), "matched_update not_matched_insert"),
}
"""By the name of the parameter; `function.parameter` or `Class.parameter` where the name means something else there."""


_MADE_BY_USERS: Final = ("Catalog", "ChangePlace", "ColumnChange", "JointTransaction", "NewColumn")
"""The classes whose constructors users call; objects of the others are handed out."""


def check_key(key: str) -> str:
    """Return the key of an object if it is legal (see `stores.objects.ObjectStore`), else raise InvalidRequest."""
    if not key or "\0" in key or not _NO_PARTS.isdisjoint(key.split("/")):
        rule = 'keys are relative, separated by "/", and have no empty, "." or ".." part'
        raise InvalidRequest(f"{key!r} is not an object key: {rule}", key=key)
    return key


def check_folder(prefix: str) -> str:
    """Return `prefix` if it names a folder, "" or a legal key and a "/", else raise InvalidRequest."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequest(f'{prefix!r} names no folder: a folder is "" or ends in "/"', prefix=prefix)
    if prefix:
        check_key(prefix[:-1])
    return prefix


def checked(target: _A) -> _A:
    """A function that checks its arguments by the table before it begins; or a class all of whose public methods do."""
    if not isinstance(target, type):
        return cast(_A, _checking(target, ""))
    for name, member in list(vars(target).items()):
        is_wrapped = isinstance(member, (classmethod, staticmethod))
        function = member.__func__ if is_wrapped else member
        is_public = not name.startswith("_") or (name == "__init__" and target.__name__ in _MADE_BY_USERS)
        if is_public and inspect.isfunction(function):
            method = _checking(function, target.__name__)
            setattr(target, name, type(member)(method) if is_wrapped else method)
    return target


def _checking(act: Any, owner: str) -> Any:
    written = inspect.unwrap(act)
    code = written.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[: code.co_argcount]
    defaults = {**(written.__kwdefaults__ or {}), **dict(zip(reversed(names), reversed(written.__defaults__ or ()), strict=False))}
    has_others = bool(code.co_flags & inspect.CO_VARARGS)
    others = RULES.get(f"*{code.co_varnames[count]}") if has_others else None
    name_of_others = code.co_varnames[count] if others else ""
    unpacked = _unpacked(written, code.co_varnames[count + has_others]) if code.co_flags & inspect.CO_VARKEYWORDS else None
    kinds = {**(unpacked[0] if unpacked else {}), **{name: str(written.__annotations__.get(name, "")) for name in code.co_varnames[:count]}}
    rules = {
        name: (
            RULES.get(f"{act.__name__}.{name}") or RULES.get(f"{owner}.{name}") or RULES.get(name),
            defaults.get(name, name) is None or _MAY_BE_NONE.search(kind) is not None,
        )
        for name, kind in kinds.items()
    }

    @functools.wraps(act)
    def checking(*given: Any, **named: Any) -> Any:
        for name, value in chain(zip(names, given, strict=False), named.items()):
            rule, may_be_none = rules.get(name, (None, True))
            if rule is not None and not (value is None and may_be_none):
                rule.check(name, value)
            if unpacked is not None and name not in rules:
                raise TypeError(f"{written.__qualname__}() got an unexpected keyword argument {name!r}")
        if others is not None:
            for value in given[len(names) :]:
                others.check(name_of_others, value)
        try:
            return act(*given, **named)
        except SluiceError as error:
            error.leaves(given[0] if given else None)
            if isinstance(error, (Corrupt, InvariantBroken)) or os.environ.get(_TRACEBACKS) == "full":
                raise
            cause = None if isinstance(error, InvalidRequest) else error.__cause__  # its message says all; others name what failed below
            raise error.with_traceback(None) from cause

    if unpacked is not None:
        checking.__signature__ = unpacked[1]  # type: ignore[attr-defined]
    return checking


def _unpacked(act: Any, name: str) -> tuple[dict[str, str], inspect.Signature] | None:
    """The keywords that a function takes as `**name: Unpack[SomeArgs]`, each with its type as a text; None if it takes any.

    And its signature with these keywords one by one, so that `help` shows what may be given.
    """
    annotation = re.fullmatch(r"Unpack\[(\w+)\]", str(act.__annotations__.get(name, "")))
    if annotation is None:
        return None
    kinds = act.__globals__[annotation[1]].__annotations__
    keywords = {each: str(getattr(kind, "__forward_arg__", kind)) for each, kind in kinds.items()}
    signature = inspect.signature(act)
    written = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    names, only = {each.name for each in written}, inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(each, only, default=None, annotation=kind) for each, kind in keywords.items() if each not in names]
    return keywords, signature.replace(parameters=[*written, *added])
