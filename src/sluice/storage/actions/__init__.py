"""The actions of a commit: the records, their lossless JSON form, and tables of very many files.

Imports `schema` and `stores`. Begin with `records.py`; `codec.py` reads and writes their JSON, `features.py` the protocol.
"""

from __future__ import annotations

from .codec import actions_of, decode, decode_commit, decode_text, encode, encode_all
from .records import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    Txn,
    UnknownAction,
)

__all__ = [
    "Action",
    "AddCDCFile",
    "AddFile",
    "CheckpointMetadata",
    "CommitInfo",
    "DeletionVector",
    "DomainMetadata",
    "Metadata",
    "Protocol",
    "RemoveFile",
    "Sidecar",
    "Txn",
    "UnknownAction",
    "actions_of",
    "decode",
    "decode_commit",
    "decode_text",
    "encode",
    "encode_all",
]
