"""The names of the files below `_delta_log/`: made from versions, and parsed."""

from __future__ import annotations

import enum
import re

from ..constants import CHECKPOINT_PART_DIGITS, LOG_FOLDER, STAGED_FOLDER, VERSION_DIGITS, VERSION_MAX
from ..dataclass import dataclass


class LogKind(enum.Enum):
    """The kind of a log file, by the last group of its name."""

    COMMIT = "commit"
    CLASSIC_CHECKPOINT = "classic"
    MULTIPART_CHECKPOINT = "parts"
    V2_CHECKPOINT = "uuid"
    COMPACTED = "end"
    CRC = "crc"


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = re.compile(
    rf"(?P<version>\d{{{VERSION_DIGITS}}})\."
    r"(?:(?P<commit>json)"
    r"|(?P<classic>checkpoint\.parquet)"
    rf"|checkpoint\.(?P<part>\d{{{CHECKPOINT_PART_DIGITS}}})\.(?P<parts>\d{{{CHECKPOINT_PART_DIGITS}}})\.parquet"
    rf"|checkpoint\.(?P<uuid>{_UUID})\.(?:json|parquet)"
    rf"|(?P<end>\d{{{VERSION_DIGITS}}})\.compacted\.json"
    r"|(?P<crc>crc))"
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log, by its parsed key: of `version`, or of the commits `version` to `end_version`.

    `part` of `parts` counts from 1. It has `size` bytes, and the store says that it was written at `modified_ms`, if a listing showed it.
    """

    key: str
    kind: LogKind
    version: int
    end_version: int
    part: int = 1
    parts: int = 1
    size: int = 0
    modified_ms: int = 0

    @classmethod
    def parse(cls, key: str, size: int = 0, modified_ms: int = 0) -> LogFile | None:
        """The parts of a key below the table's root, or None for a file that readers of the log do not use."""
        if not key.startswith(LOG_FOLDER):
            return None
        match = _NAME.fullmatch(key, len(LOG_FOLDER))
        if match is None:
            return None
        kind, version = LogKind(match.lastgroup), int(match["version"])
        end_version = int(match["end"] or version)
        part, parts = int(match["part"] or 1), int(match["parts"] or 1)
        if max(version, end_version) > VERSION_MAX or not 1 <= part <= parts or (kind is LogKind.COMPACTED and end_version <= version):
            return None
        return cls(key, kind, version, end_version, part, parts, size, modified_ms)

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a checkpoint, or a part of one."""
        return self.kind in _CHECKPOINTS


_CHECKPOINTS = frozenset({LogKind.CLASSIC_CHECKPOINT, LogKind.MULTIPART_CHECKPOINT, LogKind.V2_CHECKPOINT})


def version_prefix(version: int) -> str:
    """The prefix of all keys of `version`; listing from it shows this version and all later ones."""
    if not 0 <= version <= VERSION_MAX:
        raise ValueError(f"a version is between 0 and {VERSION_MAX}, not {version}")
    return f"{LOG_FOLDER}{version:0{VERSION_DIGITS}d}"


def commit_path(version: int) -> str:
    """`_delta_log/<version>.json`"""
    return f"{version_prefix(version)}.json"


def checkpoint_path(version: int) -> str:
    """The key of a classic checkpoint."""
    return f"{version_prefix(version)}.checkpoint.parquet"


def v2_checkpoint_path(version: int, guid: str) -> str:
    """The key of a V2 checkpoint, in JSON."""
    return f"{version_prefix(version)}.checkpoint.{guid}.json"


def checksum_path(version: int) -> str:
    """`_delta_log/<version>.crc`"""
    return f"{version_prefix(version)}.crc"


def staged_path(guid: str) -> str:
    """The key of the staged actions of one transaction."""
    return f"{STAGED_FOLDER}{guid}.json"
