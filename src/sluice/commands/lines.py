"""An error as one line. Apart from the other parts of commands: the help of all commands imports no table."""

from __future__ import annotations

from ..storage.errors import SluiceError


def one_line(error: SluiceError) -> str:
    """An error as the command line shows it."""
    return f"sluice: {type(error).__name__}: {' '.join(str(error).split())}"
