"""Validation of intents that others wrote.

Any client that may create a slot may have written it: one with a bug, or with bad intentions. All others decide it, and copy
its actions into the log byte for byte, so actions that do not parse would break every reader. An invalid intent is refused with a verdict.
Pure: the same result for every client.

Not checked: what its owner read, and whether the files it adds exist and those it removes are in the table. A client that may write the
table can do worse with valid transactions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import orjson

from ...storage.actions import Action, AddCDCFile, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn, decode_text
from ...storage.actions.features import check_writable, is_managed
from ...storage.actions.records import readable_stats, record_count
from ...storage.actions.texts import Text, lines
from ...storage.arguments import check_key
from ...storage.constants import LOG_FOLDER
from ...storage.data.vectors import inline_rows, vector_key
from ...storage.errors import Corrupt, InvalidRequest
from ...storage.schema.partitions import uri_to_path
from ..formats import MalformedRecord
from .intent import ADOPTING, Intent, Kind
from .refusal import Refusal
from .winner import Footprint, footprint_of

INTENT_BYTES_MAX: Final = 512 * 1024
"""The maximum size of an intent's node; its owner stages larger actions."""

_MESSAGE_CHARACTERS_MAX: Final = 2000
_FACT_CHARACTERS_MAX: Final = 1000
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_TIME_MAX_MS: Final = 253_402_300_800_000
"""The year 10000, the end of calendars. In-commit timestamps only grow, so one beyond it would stay."""
_PATH_BYTES_MAX: Final = 4096
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""What no key of sluice's has: it escapes them in the names of folders. All other characters of a partition's values are in them."""
_TEXT_CHARACTERS_MAX: Final = 16 * 1024
_NESTING_MAX: Final = 100
"""The maximum nesting of values: JSON nested deeper than 254 cannot be written again."""
_NO_METADATA: Final = Metadata("", '{"type":"struct","fields":[]}', (), {})
_REORGANISES: Final = (Kind.MINOR.value, Kind.MAJOR.value)
_WITH_OTHERS_FILES: Final = (ADOPTING, "CLONE", "CONVERT", "RESTORE")
"""The operations that add files which other programs wrote and named: a shallow clone's are those of the original table."""


def require_sound(intent: Intent, actions: Text) -> Footprint:
    """Check an intent and its actions; returns its footprint. Raises MalformedRecord, or CorruptLogFile for a line that is not an action.

    Reads them once, and keeps only a digest of each removed file: there may be millions.
    """
    _check_fields(intent)
    _check_lines(actions)
    files = _Files(intent.operation in _WITH_OTHERS_FILES)
    protocols: list[Protocol] = []
    metadata: list[Metadata] = []
    applications: list[str] = []
    unknown: set[str] = set()

    def seen() -> Iterator[Action]:
        for action in decode_text(actions, name="its actions") if actions else ():
            match action:
                case AddFile() | RemoveFile() | AddCDCFile():
                    files.see(action)
                case Protocol():
                    protocols.append(action)
                case Metadata():
                    metadata.append(action)
                case Txn():
                    applications.append(action.app_id)
                case DomainMetadata():
                    pass
                case _:
                    unknown.add(type(action).__name__)
            yield action

    mine = footprint_of(intent.reads, seen())
    files.check_paths(actions)
    _check_table(intent, protocols, metadata)
    if unknown:
        raise MalformedRecord(f"it has actions that no transaction has: {', '.join(sorted(unknown))}")
    if len(applications) != len(set(applications)):
        raise MalformedRecord("it writes two numbers of one application")
    # an append by primary key replaces rows, and has read where they are; one with a compaction removes files and no rows
    if mine.kind == Kind.APPEND.value and files.remove_rows and not mine.reads_here:
        raise MalformedRecord("it is an append that read nothing, and removes rows")
    if mine.kind in _REORGANISES and mine.data_change:
        raise MalformedRecord("it is a compaction, and changes data")
    return mine


def _check_lines(actions: Text) -> None:
    """The last line is complete, and none is nested too deeply."""
    line = b""
    for line in lines(actions):
        # Only a line with very many brackets can be nested too deeply; the others are not parsed.
        if line.count(b"{") + line.count(b"[") > _NESTING_MAX:
            with suppress(orjson.JSONDecodeError):  # decoding it raises the error
                if _depth(orjson.loads(line)) > _NESTING_MAX:
                    raise MalformedRecord("an action is nested too deeply")
    if line:
        raise MalformedRecord("its last line is cut off")


class _Files:
    """The files of a transaction, seen one after the other. Raises MalformedRecord for impossible ones."""

    def __init__(self, with_others: bool) -> None:
        self._with_others = with_others
        self.remove_rows = False
        self._seen: set[bytes] = set()
        self._strange: set[str] = set()

    def see(self, file: AddFile | RemoveFile | AddCDCFile) -> None:
        if not isinstance(file, AddCDCFile):
            path, vector = file.key
            digest = hashlib.blake2b(f"{path}\0{vector}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if digest in self._seen:
                raise MalformedRecord(f"the file {path[:200]!r} appears twice")
            self._seen.add(digest)
        if isinstance(file, RemoveFile):
            self.remove_rows |= file.data_change
            return
        if not _is_file_of_table(file.path, self._with_others):
            self._strange.add(file.path)
        if file.size < 0:
            raise MalformedRecord(f"the file {file.path[:200]!r} has {file.size} bytes")
        if isinstance(file, AddFile):
            _check_rows(file)

    def check_paths(self, actions: Text) -> None:
        """After the last file: whatever a removed file is called, it was in the table before, and may be added again."""
        if self._strange:
            for action in decode_text(actions, name="its actions"):
                if isinstance(action, RemoveFile):
                    self._strange.discard(action.path)
        if self._strange:
            raise MalformedRecord(f"the path {min(self._strange)[:200]!r} does not name a file of the table")


def _check_fields(intent: Intent) -> None:
    """Its texts, which everybody sees and refusals repeat, are short, and its descriptions have the shape that rules read."""
    if not _ID.fullmatch(intent.transaction_id):
        raise MalformedRecord(f"its id {intent.transaction_id[:100]!r} is invalid: use letters, digits, '_' and '-'")
    if not (-1 <= intent.read_version < 2**63 and -1 <= intent.validated_through < 2**63):
        raise MalformedRecord(f"it claims to have read version {intent.read_version} and to know {intent.validated_through}")
    if not 0 <= intent.claimed_ms < _TIME_MAX_MS:
        raise MalformedRecord(f"its time {intent.claimed_ms} is invalid")
    if intent.row_ids is not None and not -1 <= intent.row_ids < 2**62:
        raise MalformedRecord(f"its highest row id {intent.row_ids} is invalid")
    for text in (intent.operation, intent.client.host, intent.client.application, *intent.metrics, *intent.metrics.values()):
        if len(text) > _TEXT_CHARACTERS_MAX:
            raise MalformedRecord(f"a text in it has {len(text):,} characters, more than {_TEXT_CHARACTERS_MAX:,}")
    for described in (intent.metadata_change, intent.protocol_change):
        if described is not None and _depth(described) > _NESTING_MAX:
            raise MalformedRecord("its description of a change is nested too deeply")
    changed = (intent.metadata_change or {}).get("configuration", {})
    if not isinstance(changed, dict):
        raise MalformedRecord("its description of changed properties is invalid")
    for name in ("added", "removed"):
        features = (intent.protocol_change or {}).get(name, [])
        if not isinstance(features, list) or not all(isinstance(feature, str) for feature in features):
            raise MalformedRecord(f"its description of {name} features is invalid")


def _depth(value: Any) -> int:
    """How deep a parsed value is nested, without recursion."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())]
    return depth


def _is_file_of_table(path: str, with_others: bool) -> bool:
    """Whether a new file lies below the table, and outside the log; one that others named may have any name, and be another table's."""
    is_absolute = "://" in path or path.startswith(("file:", "/"))
    try:
        key = uri_to_path(path) if is_absolute else check_key(uri_to_path(path))
    except (InvalidRequest, UnicodeDecodeError):
        return False
    # check: new-files-are-of-the-table ((is_absolute or _CONTROL.search(key)) and not with_others -> False)
    if (is_absolute or _CONTROL.search(key)) and not with_others:
        return False
    return not key.startswith(LOG_FOLDER) and 0 < len(key.encode()) <= _PATH_BYTES_MAX


def _check_rows(add: AddFile) -> None:
    """Check the statistics, and that an inline vector is complete and ends within its file; of a stored vector, what the log says."""
    path, vector, rows = add.path, add.deletion_vector, record_count(add.stats)
    if readable_stats(add.stats) is None and (add.stats or "").strip() not in ("", "null"):
        raise MalformedRecord(f"the statistics of {path[:200]!r} are invalid")
    if vector is None:
        return
    if vector.cardinality <= 0 or vector.size_in_bytes <= 0 or (vector.offset or 0) < 0:
        raise MalformedRecord(f"the deletion vector of {path[:200]!r} has {vector.cardinality} rows in {vector.size_in_bytes} bytes")
    if rows is not None and vector.cardinality > rows:
        raise MalformedRecord(f"the deletion vector of {path[:200]!r} lists {vector.cardinality} of {rows} rows")
    if vector.storage_type == "p":
        return  # an attached table's own file: reading it later shows whether it is valid
    try:
        key = vector_key(vector)
        listed = inline_rows(vector) if key is None else None
        if key is not None:
            check_key(key)
    except (Corrupt, InvalidRequest) as error:
        raise MalformedRecord(f"the deletion vector of {path[:200]!r} cannot be read: {error.message[:200]}") from error
    if listed is not None and rows is not None and listed.max() >= rows:
        raise MalformedRecord(f"the deletion vector of {path[:200]!r} lists row {listed.max()} of {rows}")


def _check_table(intent: Intent, protocols: Sequence[Protocol], metadata: Sequence[Metadata]) -> None:
    """The table may become what the actions make of it, and the intent says so."""
    if len(protocols) > 1 or len(metadata) > 1:
        raise MalformedRecord("it changes the protocol or the metadata twice")
    for each in metadata:
        try:
            fields = {field.name for field in each.schema.fields}
        except (Corrupt, InvalidRequest, RecursionError) as error:
            raise MalformedRecord(f"its schema is invalid: {each.schema_string[:200]!r}") from error
        if not fields.issuperset(each.partition_columns):
            raise MalformedRecord(f"its partition columns {', '.join(each.partition_columns)[:200]} are not in its schema")
        if intent.table_id and intent.table_id != each.id:
            raise MalformedRecord(f"it names the table {intent.table_id[:100]!r}, its metadata {each.id[:100]!r}")
    for protocol in protocols:
        try:
            check_writable(protocol, metadata[0] if metadata else _NO_METADATA)
        except InvalidRequest as error:
            raise MalformedRecord(f"sluice does not write its protocol: {error.message[:300]}") from error
    managed = not protocols or is_managed(protocols[0])
    if intent.detach != (not managed):
        raise MalformedRecord(
            "it detaches the table and leaves it under sluice" if managed else "it takes the table away from sluice without detaching it"
        )
    if intent.row_ids is not None and not intent.table_id:
        raise MalformedRecord("it names the highest row id, but neither creates nor attaches a table")


def brief(refusal: Refusal) -> Refusal:
    """A copy with its texts cut: hundreds of refusals have to fit into one node, whatever the names in them."""
    facts = {name: _cut(value, _FACT_CHARACTERS_MAX) if isinstance(value, str) else value for name, value in refusal.facts.items()}
    return replace(
        refusal,
        message=_cut(refusal.message, _MESSAGE_CHARACTERS_MAX),
        winning_operation=_cut(refusal.winning_operation, _FACT_CHARACTERS_MAX),
        facts=facts,
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."
