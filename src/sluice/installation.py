"""What is installed: the version of sluice, its name in commits, and the command that adds an extra, for messages."""

from __future__ import annotations

import json
from urllib.parse import unquote

__version__ = "0.1.0"
ENGINE = f"sluice/{__version__}"
_DISTRIBUTION = "sluice-delta"


def install_command(extra: str) -> str:
    """The command that adds an extra of `pyproject.toml` to this installation.

    An installation from a folder or a file, as PEP 610 records it, is extended from there: the package index need not have sluice.
    """
    from importlib import metadata  # takes 30 ms to load, and only messages need it

    try:
        record = metadata.distribution(_DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # run from the sources, without an installation
        record = None
    url = str(json.loads(record)["url"]) if record else _DISTRIBUTION
    origin = unquote(url.removeprefix("file://")) if url.startswith("file://") else url
    return f"pip install '{origin}[{extra}]'"
