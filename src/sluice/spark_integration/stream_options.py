"""The options of `spark.readStream.format("sluice")`, whose names are Delta's, from Spark's texts (see `option_tables`).

Tasks of a stream get the options parsed, and load no code that parses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..tables.client.address import TableAddress
from ..tables.read.streams.offsets import Limits, Start, StreamRules

if TYPE_CHECKING:
    from .options import ReadOptions

_FILES: Final = 1000
_POLL_S: Final = 5.0
_OF_ROWS: Final = ("ignoreDeletes", "ignoreChanges", "skipChangeCommits", "excludeRegex", "where", "withEventTimeOrder")


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    """The options of a streaming read."""

    address: TableAddress
    start: Start
    rules: StreamRules
    """What it reads of a version."""
    limits: Limits
    consistency: str = "latest"
    """How new versions are noticed: "latest" by the coordinator, "published" by looking at the store."""
    where: str | None = None
    """A condition: files that cannot satisfy it are not read."""
    poll_s: float = _POLL_S
    """The most seconds between two looks at the store."""
    tracking: str | None = None
    """The folder in which the stream keeps the schemas of versions."""

    @staticmethod
    def parse(options: Mapping[str, str]) -> StreamReadOptions:
        """From Spark's texts. Raises InvalidRequest, naming the option and its allowed values."""
        from .option_tables import READING, STREAMING, WRITING
        from .options import OptionReader

        reader = OptionReader(options, STREAMING, "streams", (*READING, *WRITING))
        for name in _OF_ROWS if reader["readChangeFeed"] else ():
            if name in reader:
                message = f"readChangeFeed and {name} were given, and changes are read whole, with deletes: leave one of them out"
                raise InvalidRequest(message, option=name)
        if reader["ignoreChanges"] and reader["skipChangeCommits"]:
            what = "the one reads changed files again, the other passes over them"
            raise InvalidRequest(f"ignoreChanges and skipChangeCommits were given: {what}; give one", option="skipChangeCommits")
        if bool(reader["withEventTimeOrder"]) != ("eventTimeColumn" in reader):
            raise InvalidRequest("withEventTimeOrder=true and eventTimeColumn belong together; give both, or neither")
        consistency = reader["consistency"] or "latest"
        if "pollInterval" in reader and consistency == "latest":
            remedy = "leave it out, or read with consistency=published"
            raise InvalidRequest(f"pollInterval has no effect, since the coordinator announces versions: {remedy}", option="pollInterval")
        if "startingVersion" in reader and "startingTimestamp" in reader:
            raise InvalidRequest("startingVersion and startingTimestamp were given; give one of them", option="startingTimestamp")
        version = reader["startingVersion"]
        files, size = reader["maxFilesPerTrigger"], reader["maxBytesPerTrigger"]
        return StreamReadOptions(
            reader.address(),
            Start(latest=True) if version == "latest" else Start(version, reader["startingTimestamp"]),
            StreamRules(**reader.fields()),
            Limits(_FILES if files is None and size is None else files, size),
            consistency,
            reader["where"],
            reader["pollInterval"] or _POLL_S,
            reader["schemaTrackingLocation"],
        )


def asked_of(options: Mapping[str, str]) -> ReadOptions | StreamReadOptions:
    """The options of a read, of which Spark does not say whether it is a stream: what only a stream may say makes it one. Raises
    InvalidRequest for what neither may say.
    """
    from .option_tables import ONLY_STREAMING
    from .options import ReadOptions

    try:
        return ReadOptions.parse(options)
    except InvalidRequest as refused:
        only = {name.lower() for name in ONLY_STREAMING}
        try:
            return StreamReadOptions.parse(options)
        except InvalidRequest:
            if any(name.lower() in only for name in options):
                raise
            raise refused from None
