"""Adapts an object store's streams for Arrow."""

from __future__ import annotations

import io
import os
from typing import BinaryIO

import pyarrow as pa

from ..errors import ObjectNotFound


def version_of(stream: BinaryIO) -> object:
    """Equal for two streams of the same version of an object; None if the store cannot tell."""
    if isinstance(stream, io.BufferedReader | io.FileIO):
        found = os.fstat(stream.fileno())
        return found.st_dev, found.st_ino, found.st_mtime_ns
    return getattr(stream, "version", None) or None


def arrow_input(stream: BinaryIO) -> pa.NativeFile:
    """The stream as an Arrow file: a plain local file (`pa.OSFile`) is read without calling back into Python.

    Raises ObjectNotFound for a local file that was removed at this moment.
    """
    if isinstance(stream, io.BufferedReader | io.FileIO) and isinstance(stream.name, str):
        with stream:
            try:
                return pa.OSFile(stream.name)
            except FileNotFoundError as gone:
                raise ObjectNotFound(f"{stream.name}: there is no such object", path=stream.name) from gone
    return pa.PythonFile(stream, mode="r")
