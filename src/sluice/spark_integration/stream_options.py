"""The options of `spark.readStream.format("sluice")`, parsed from texts; their names are Delta's.

==============================  ============================================================================================
``path``, ``coordinator``,      as for other reads (see `options`)
``application``, ``s3.<name>``
``startingVersion``             the first version whose rows are read, or "latest": those to come. Without it and the next one, the
                                stream begins with all rows of the version that is current at its first start
``startingTimestamp``           likewise by time: the first version of that time or later
``maxFilesPerTrigger``          the maximum files of a batch: 1000 by default, unless there is a maximum of bytes
``maxBytesPerTrigger``          a batch takes no further file after this many bytes, but at least one; `10m` and `1g` may be written
``ignoreDeletes``               "true" passes over versions that only deleted rows: whole files, or by deletion vectors
``ignoreChanges``               "true" reads all files that a version wrote to change rows: rows that it only copied come again
``skipChangeCommits``           "true" passes over every version that deleted or changed rows, with all of its rows
``excludeRegex``                leaves out files whose path in the log has a match of this regular expression
``failOnDataLoss``              "false" goes on from the first version there is if the next one was cleaned up, and passes over data
                                files that are gone (not those of changes)
``readChangeFeed``              "true" reads what versions inserted and deleted, with `_change_type`, `_commit_version` and
                                `_commit_timestamp`; the rows of the first snapshot are inserts
``withEventTimeOrder``          "true" reads the first snapshot in the order of `eventTimeColumn`, so that a watermark drops none of it
``eventTimeColumn``             that column, a timestamp or date: PySpark does not tell a source which column has the watermark
``where``                       a condition in SQL: files that cannot have such rows are skipped
``schemaTrackingLocation``      a folder for this stream alone: the stream shows each version with the schema that it had, and stops once
                                where the schema changes
``consistency``                 "latest" (default): new versions are noticed by a watch in the coordinator; "published": any Delta
                                table, without the coordinator, by looking at the store
``pollInterval``                with "published": the maximum seconds between two looks, 5 by default
==============================  ============================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..tables.client.address import TableAddress
from ..tables.read.streams.offsets import Limits, Start, StreamRules
from .options import READING, STREAMING, WRITING, ReadOptions, Texts, parse_timestamp

_FILES: Final = 1000
_POLL_S: Final = 5.0
_OF_ROWS: Final = ("ignoreDeletes", "ignoreChanges", "skipChangeCommits", "excludeRegex", "where", "withEventTimeOrder")


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    """The options of a streaming read."""

    address: TableAddress
    start: Start
    rules: StreamRules
    limits: Limits
    consistency: str
    where: str | None
    poll_s: float
    tracking: str | None = None

    @staticmethod
    def parse(options: Mapping[str, str]) -> StreamReadOptions:
        """From Spark's texts. Raises InvalidRequest, naming the option and its allowed values."""
        own = tuple(dict.fromkeys((*STREAMING, "consistency", "where", "readChangeFeed", "startingVersion", "startingTimestamp")))
        texts = Texts(options, own, "streams", (*READING, *WRITING))

        def flag(name: str, default: str = "false") -> bool:
            return texts.choice(name, default, "false" if default == "true" else "true") == "true"

        changes = flag("readChangeFeed")
        for name in _OF_ROWS if changes else ():
            if name in texts:
                raise InvalidRequest(
                    f"readChangeFeed and {name} were given, and changes are read whole, with deletes: leave one of them out", option=name
                )
        if flag("ignoreChanges") and flag("skipChangeCommits"):
            raise InvalidRequest(
                "ignoreChanges and skipChangeCommits were given: the one reads changed files again, the other passes over them; give one",
                option="skipChangeCommits",
            )
        ordered = flag("withEventTimeOrder")
        if ordered != ("eventTimeColumn" in texts):
            raise InvalidRequest("withEventTimeOrder=true and eventTimeColumn belong together; give both, or neither")
        consistency = texts.choice("consistency", "latest", "published")
        if "pollInterval" in texts and consistency == "latest":
            raise InvalidRequest(
                "pollInterval has no effect, since the coordinator announces versions: leave it out, or read with consistency=published",
                option="pollInterval",
            )
        rules = StreamRules(
            ignore_deletes=flag("ignoreDeletes"),
            ignore_changes=flag("ignoreChanges"),
            skip_change_commits=flag("skipChangeCommits"),
            exclude=_pattern(texts.get("excludeRegex")),
            changes=changes,
            fail_on_data_loss=flag("failOnDataLoss", "true"),
            event_time=texts.get("eventTimeColumn"),
        )
        return StreamReadOptions(
            texts.address(),
            _start(texts),
            rules,
            _limits(texts),
            consistency,
            texts.get("where"),
            texts.seconds("pollInterval", _POLL_S),
            texts.get("schemaTrackingLocation"),
        )


def asked_of(options: Mapping[str, str]) -> ReadOptions | StreamReadOptions:
    """The options of a read, of which Spark does not say whether it is a stream: what only a stream may say makes it one.

    Raises InvalidRequest for what neither may say.
    """
    try:
        return ReadOptions.parse(options)
    except InvalidRequest as refused:
        only = {name.lower() for name in STREAMING}
        try:
            return StreamReadOptions.parse(options)
        except InvalidRequest:
            if any(name.lower() in only for name in options):
                raise
            raise refused from None


def _start(texts: Texts) -> Start:
    if "startingVersion" in texts and "startingTimestamp" in texts:
        raise InvalidRequest("startingVersion and startingTimestamp were given; give one of them", option="startingTimestamp")
    if "startingTimestamp" in texts:
        return Start(timestamp_ms=parse_timestamp(texts["startingTimestamp"], "startingTimestamp"))
    text = texts.get("startingVersion")
    if text is not None and text.strip().lower() == "latest":
        return Start(latest=True)
    return Start(version=texts.number("startingVersion"))


def _limits(texts: Texts) -> Limits:
    files, size = texts.number("maxFilesPerTrigger"), texts.number("maxBytesPerTrigger")
    return Limits(_FILES if files is None and size is None else files, size)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as cause:
        raise InvalidRequest(
            f"the option excludeRegex is {text!r}, which is no regular expression: {cause}", option="excludeRegex"
        ) from None
