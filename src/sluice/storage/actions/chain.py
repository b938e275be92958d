"""The chain of a log: what a commit says of the commit before it, and of the table's files after it.

`commitInfo.sluice.chain` has the commit's own `version`, the SHA-256 of the whole file of the version before it (`previous`), and a hash of
the set of live files after it (`files`). The hash is the sum of one number for each file, modulo 2^256, so that a commit changes it without
a look at the other files. A file's number is the SHA-256 of its path in the log, a zero byte, and its deletion vector's unique id.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

import pyarrow as pa

from ..dataclass import dataclass
from ..jsontext import loads
from .records import CommitInfo, DeletionVector
from .texts import Text, lines

MODULUS: Final = 1 << 256
NO_FILES: Final = "0" * 64
"""The hash of no files."""
_HASH: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Link:
    """What a commit says of the chain; `previous` is "" if no version is before it, or none that is known."""

    version: int
    previous: str
    files: str

    @staticmethod
    def of(info: CommitInfo | None) -> Link | None:
        """What a commitInfo says; None for a commit of another engine, or of a release without chains."""
        ours = None if info is None else info.fields.get("sluice")
        match ours.get("chain") if isinstance(ours, dict) else None:
            case {"version": int(version), "previous": str(previous), "files": str(files)} if _HASH.fullmatch(files):
                return Link(version, previous, files)
        return None


def files_of(table: pa.Table) -> str:
    """The hash of a set of files, in `filetable.FILES_SCHEMA`."""
    total = 0
    for batch in table.select(["path", "deletion_vector"]).to_batches():
        for path, vector in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            unique_id = "" if vector is None else DeletionVector(**vector).unique_id
            total += int(sha256(f"{path}\0{unique_id}".encode()).hexdigest(), 16)
    return f"{total % MODULUS:064x}"


def files_after(files: str, actions: Text) -> str:
    """The hash of a set of files after the actions of a commit.

    Files that it adds without a change of data, while it removes none, were in the table before and get other statistics ("Add File and
    Remove File" in PROTOCOL.md).
    """
    new = again = gone = 0
    for line in lines(actions):
        action = loads(line) if line else {}
        for kind in ("add", "remove"):
            file = action.get(kind)
            if file is None:
                continue
            vector, unique_id = file.get("deletionVector"), ""
            if vector is not None:
                offset = vector.get("offset")
                unique_id = f"{vector['storageType']}{vector['pathOrInlineDv']}{'' if offset is None else f'@{offset}'}"
            number = int(sha256(f"{file['path']}\0{unique_id}".encode()).hexdigest(), 16)
            if kind == "remove":
                gone += number
            elif file["dataChange"]:
                new += number
            else:
                again += number
    # check: files-added-again-count-once (again if gone else 0 -> again)
    total = int(files, 16) + new - gone + (again if gone else 0)
    return f"{total % MODULUS:064x}"
