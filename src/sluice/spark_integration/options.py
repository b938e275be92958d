"""The options of a read and of a write through `format("sluice")`, from the texts that Spark passes on (see `option_tables`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, fields, replace
from datetime import datetime, timezone
from difflib import get_close_matches
from typing import Any, Final

from ..coordinator.rules.intent import Terms
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..storage.stores.storage_options import StorageOptions
from ..tables.client.address import TableAddress, version_of_path
from ..tables.write.terms import application_transaction
from .active_session import default_storage_options
from .option_tables import NOT_IN_STREAMS, NOT_OURS, ONLY_STREAMING, READING, STREAMING, TABLE, WRITING, Option

_PROPERTIES: Final = ("delta.", "sluice.")
_STORAGE: Final = tuple(each.name for each in fields(StorageOptions))
_STORAGE_PREFIX: Final = "s3."
_AZURE: Final = "azure."
"""How an option for Azure begins in Spark, whose users write prefixes with a point."""


def _utc(digits: str) -> int | None:
    """Milliseconds since the epoch of a time in UTC, yyyyMMddHHmmssSSS; None if it is none."""
    with suppress(ValueError):
        return round(datetime.strptime(digits, "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc).timestamp() * 1000)
    return None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read."""

    address: TableAddress
    version: int | None = None
    """The version to read; None: by time, or the latest."""
    timestamp_ms: int | None = None
    consistency: str = "latest"
    """How fresh the latest version is."""
    where: str | None = None
    """A condition: files that cannot satisfy it are not read."""
    changes: ChangesOptions | None = None
    """The changes to read instead of rows."""

    @staticmethod
    def parse(options: Mapping[str, str], *, time_of: Callable[[str], int | None] = _utc) -> ReadOptions:
        """From Spark's texts. Raises InvalidRequest, naming the option and its allowed values. `time_of` gives the time, in ms since the
        epoch, that a path names as yyyyMMddHHmmssSSS; None if it is no time.
        """
        only = {name.lower(): name for name in ONLY_STREAMING}
        option = next((only[name.lower()] for name in options if name.lower() in only), None)
        if option is not None:
            raise InvalidRequest(f"the option {option} is for streams: read with spark.readStream, or leave it out", option=option)
        reader = OptionReader(options, READING, "reading", WRITING)
        if "versionAsOf" in reader and "timestampAsOf" in reader:
            raise InvalidRequest("versionAsOf and timestampAsOf were given; give one of them")
        values = reader.fields()
        named = version_of_path(reader["path"] or "", reader.storage)
        if named is not None:
            other = next((name for name in ("versionAsOf", "timestampAsOf", "readChangeFeed") if name in reader), None)
            if other is not None:
                raise InvalidRequest(f"the path {reader['path']} names a version, and {other} was given: give one of them", option=other)
            values |= {"version": named.version, "timestamp_ms": None if named.time is None else time_of(named.time)}
            if named.time is not None and values["timestamp_ms"] is None:
                raise InvalidRequest(f"the path names the time @{named.time}, which is none: write it as yyyyMMddHHmmssSSS", option="path")
        if values.get("version") is None and values.get("timestamp_ms") is None:
            values["version"] = reader["loadedVersion"]
        return ReadOptions(reader.address(None if named is None else named.path), changes=ChangesOptions.of(reader), **values)


@dataclass(frozen=True, slots=True)
class ChangesOptions:
    """The changes to read: those of (after, up_to]."""

    after: int
    """The last version, or the last ms since the epoch, before them."""
    up_to: int | None
    """The last one with them; None: the latest."""
    by: str
    """What these two are: "version" or "timestamp"."""

    @staticmethod
    def of(reader: OptionReader) -> ChangesOptions | None:
        """From the options, whose bounds are inclusive; None if no changes are requested."""
        bounds = [name for name in ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp") if name in reader]
        if not reader["readChangeFeed"]:
            if bounds:
                raise InvalidRequest(f"{bounds[0]} was given without readChangeFeed=true; give both, or neither", option=bounds[0])
            return None
        for name in ("versionAsOf", "timestampAsOf"):
            if name in reader:
                raise InvalidRequest(f"readChangeFeed and {name} were given; give startingVersion and endingVersion", option=name)
        unit, other = ("Timestamp", "Version") if "startingTimestamp" in reader else ("Version", "Timestamp")
        for name in (f"starting{other}", f"ending{other}"):
            if name in reader:
                message = f"{name} and starting{unit} were given; give both bounds as versions, or both as timestamps"
                raise InvalidRequest(message, option=name)
        start, end = (reader[f"{edge}{unit}"] for edge in ("starting", "ending"))
        if start is None:
            message = "readChangeFeed=true was given without a start; give startingVersion (0 for everything) or startingTimestamp"
            raise InvalidRequest(message, option="startingVersion")
        return ChangesOptions(start - 1, end, unit.lower())


_OF_TERMS: Final = tuple(each.name for each in fields(Terms))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write."""

    address: TableAddress
    mode: str = "append"
    """"append", "overwrite" or "dynamic"."""
    partition_by: tuple[str, ...] | None = None
    """The partition columns of a new table; None if they were not given."""
    cluster_by: tuple[str, ...] | None = None
    """The columns by which a new table is clustered; None if they were not given."""
    properties: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    """The rows that an overwrite replaces; None: all."""
    merge_schema: bool = False
    """Whether columns are added that the table lacks."""
    allow_nonempty: bool = False
    """Whether a table may be created in a folder with other files."""
    terms: Terms = Terms()
    """On what terms the write is committed."""
    read_where: str | None = None
    """The rows that were read of the version from which the rows were computed; None: all."""
    leases: tuple[str, ...] = ()
    """The nodes of leases on which the write depends."""
    max_records_per_file: int | None = None
    compression: str | None = None
    """The codec of the files, by Arrow's name; None: as the session says."""
    optimize_write: bool | None = None
    """Whether rows are shuffled by partition first; None: as the session or the table says."""
    overwrite_schema: bool = False
    """Whether an overwrite replaces the table's schema."""
    only_new: bool = False
    """No option: the table must not exist yet."""
    name: str | None = None
    """No option: the name that the table gets when it is created."""
    managed: bool = False
    """No option: whether the catalog chose its location."""
    replaces: bool = False
    """No option: whether the table is replaced with its properties."""
    source_known: bool = True
    """No option: whether somebody saw what the rows were computed from."""
    defines: bool = False
    """No option: whether the history says CREATE TABLE AS SELECT, not WRITE, if the table is new."""

    @staticmethod
    def parse(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
        """From Spark's texts. Raises InvalidRequest, naming the option and its allowed values."""
        reader = OptionReader(options, WRITING, "writing", (*READING, *STREAMING))
        is_dynamic = reader["partitionOverwriteMode"] == "dynamic"
        if not overwrite and "replaceWhere" in reader:
            message = "replaceWhere was given for an append; write with mode('overwrite'), or leave it out"
            raise InvalidRequest(message, option="replaceWhere")
        if "readWhere" in reader and (overwrite or "readVersion" not in reader):
            message = "readWhere says what an append read of readVersion; give both with mode('append'), or leave it out"
            raise InvalidRequest(message, option="readWhere")
        if is_dynamic and "replaceWhere" in reader:
            raise InvalidRequest("replaceWhere and partitionOverwriteMode=dynamic were given; give one of them")
        mode = ("dynamic" if is_dynamic else "overwrite") if overwrite else "append"
        values, properties = reader.fields(), reader["properties"] or {}
        for key in properties.keys() & reader.properties.keys():
            if properties[key] != reader.properties[key]:
                message = f"{key} is {properties[key]!r} in the option properties and {reader.properties[key]!r} as an option: give it once"
                raise InvalidRequest(message, option=key)
        values["properties"] = {**properties, **reader.properties}
        if not overwrite:
            values.pop("overwrite_schema", None)
        app, version, key = reader["txnAppId"], reader["txnVersion"], reader["idempotencyKey"]
        if (app is None) != (version is None):
            raise InvalidRequest("txnAppId and txnVersion belong together; give both, or neither")
        if app is not None and key is not None:
            raise InvalidRequest("txnAppId and idempotencyKey were given; give one of them", option="idempotencyKey")
        once = application_transaction(None if app is None else (app, version), key)
        terms = Terms(once=once, **{name: values.pop(name) for name in _OF_TERMS if name in values})
        return WriteOptions(reader.address(), mode, terms=terms, **values)

    @property
    def of_files(self) -> dict[str, Any]:
        """What they say of the files, by the fields of a `WritePlan`."""
        return {"max_records_per_file": self.max_records_per_file, "compression": self.compression}

    @staticmethod
    def for_tasks(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
        """For a data source, whose tasks get the rows as they come. Raises InvalidRequest for a write that cannot be so."""
        parsed = WriteOptions.parse(options, overwrite=overwrite)
        if parsed.optimize_write:
            raise InvalidRequest(
                "optimizeWrite=true shuffles rows before they are written, and a Python data source gets them afterwards: write in a "
                "session of sluice.configure, or leave the option out and write df.repartition(...)",
                option="optimizeWrite",
            )
        return replace(parsed, source_known=False)

    @staticmethod
    def refuse_for_streams(options: Mapping[str, str]) -> None:
        """Raise InvalidRequest for an option that a batch write may have, and a stream may not."""
        names = {name.lower() for name in options}
        for name, why in NOT_IN_STREAMS.items():
            if name.lower() in names:
                raise InvalidRequest(f"the option {name} was given for a stream, {why}: leave it out", option=name)


class OptionReader:
    """The options that were given for one read or write, by a table of those that it may have."""

    def __init__(self, options: Mapping[str, str], table: Mapping[str, Option], doing: str, others: Iterable[str]) -> None:
        """Raises InvalidRequest for unknown options, and for `others`, which are not for `doing` this."""
        self._table = {**TABLE, **table}
        self._texts: dict[str, str] = {}
        self.storage: dict[str, str] = default_storage_options()
        self.properties: dict[str, str] = {}
        spelled, elsewhere = ({name.lower(): name for name in names} for names in (self._table, others))
        for key, text in options.items():
            lowered = key.lower()
            if lowered in spelled:
                self._texts[spelled[lowered]] = text
            elif "properties" in table and lowered.startswith(_PROPERTIES):
                self.properties[key] = text
            elif (name := lowered.removeprefix(_STORAGE_PREFIX).replace(_AZURE, "azure_", 1)) in _STORAGE:
                self.storage[name] = text
            elif lowered in elsewhere:
                raise InvalidRequest(f"the option {elsewhere[lowered]} is not for {doing}; leave it out", option=elsewhere[lowered])
            else:
                raise self._unknown(key)

    def _unknown(self, key: str) -> InvalidRequest:
        if key.lower() == "paths":
            return InvalidRequest("several paths were given; a sluice table is one location, read each and union them", option=key)
        of_delta = {name.lower(): name for name in NOT_OURS}.get(key.lower())
        if of_delta is not None:
            return InvalidRequest(f"sluice has no option {of_delta}, leave it out: {NOT_OURS[of_delta]}", option=of_delta)
        options = [*self._table]
        names = {name.lower(): name for name in (*options, *(STREAMING if "readChangeFeed" in options else ()))}
        near = [names[each] for each in get_close_matches(key.lower(), names, n=2)]
        meant = f", do you mean {' or '.join(near)}?" if near else ";"
        return InvalidRequest(
            f"unknown option {key!r} of format('sluice'){meant} known are {', '.join(options)} and, for the store, "
            f"{', '.join(_STORAGE_PREFIX + name for name in _STORAGE).replace(_STORAGE_PREFIX + 'azure_', _AZURE)}",
            option=key,
        )

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def __getitem__(self, name: str) -> Any:
        """The value of an option; None if it was not given. Raises InvalidRequest."""
        text = self._texts.get(name)
        return None if text is None else self._table[name].read(name, text)

    def fields(self) -> dict[str, Any]:
        """The values of the options that were given, by the fields that have them. Raises InvalidRequest."""
        return {each.field: each.read(name, self._texts[name]) for name, each in self._table.items() if each.field and name in self._texts}

    def address(self, path: str | None = None) -> TableAddress:
        """The table; `path` counts instead of the option. Raises InvalidRequest without a path, UnknownScheme."""
        path = path or self["path"]
        if not path:
            raise InvalidRequest(
                "no path was given: name the table's location in load(...), save(...) or OPTIONS (path '...'); "
                "Spark does not pass the path of a table in its own catalog to a Python data source",
                option="path",
            )
        # otherwise this would be the name of Spark's worker processes
        application = self["application"] or os.environ.get("SLUICE_APPLICATION") or "pyspark"
        return TableAddress.of(path, self["coordinator"], self.storage, application)
