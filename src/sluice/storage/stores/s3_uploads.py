"""Unfinished objects in a bucket: multipart uploads that were begun, but neither completed nor aborted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from .objects import Unfinished

__all__ = ["just_before", "milliseconds", "unfinished_uploads"]


def unfinished_uploads(page: Callable[..., dict[str, Any]], root: str) -> Iterator[Unfinished]:
    """The uploads below `root`; `page` lists them as S3's ListMultipartUploads does."""
    parameters: dict[str, Any] = {"Prefix": root}
    while True:
        listed = page(**parameters)
        for found in listed.get("Uploads", ()):
            yield Unfinished(str(found["Key"])[len(root) :], str(found["UploadId"]), milliseconds(found["Initiated"]))
        if not listed.get("IsTruncated"):
            return
        parameters |= {"KeyMarker": listed["NextKeyMarker"], "UploadIdMarker": listed["NextUploadIdMarker"]}


def milliseconds(moment: datetime) -> int:
    """A time from S3 in ms since the epoch."""
    return round(moment.timestamp() * 1000)


def just_before(key: str) -> str:
    """A key just below `key`, with almost nothing in between: S3 lists keys *after* a given one, but callers want `key`, too."""
    last = key[-1]
    return key[:-1] + (chr(ord(last) - 1) + "~" if " " < last <= "~" else "")
