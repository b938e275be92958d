"""Streams of an object store as Arrow reads them."""

from __future__ import annotations

import io
from typing import BinaryIO

import pyarrow as pa

from .errors import ObjectNotFound

__all__ = ["arrow_input"]


def arrow_input(stream: BinaryIO) -> pa.NativeFile:
    """The stream as a file of Arrow's: a plain local file (`pa.OSFile`) is read without coming back to Python.

    Raises ObjectNotFound for a local file that was removed at this moment.
    """
    if isinstance(stream, io.BufferedReader | io.FileIO) and isinstance(stream.name, str):
        with stream:
            try:
                return pa.OSFile(stream.name)
            except FileNotFoundError as gone:
                raise ObjectNotFound(f"{stream.name}: there is no such object", path=stream.name) from gone
    return pa.PythonFile(stream, mode="r")
