"""The actions of a commit: the records, and their lossless JSON form."""

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
    FileKey,
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
    "FileKey",
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
