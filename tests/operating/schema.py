"""The published schema of the status document."""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from sluice.operating.document import FORMAT, Status

PATH = Path(__file__).parents[2] / "docs" / "reference" / f"status-{FORMAT}.schema.json"


def schema() -> dict[str, Any]:
    """The JSON schema of the document, whose texts are the docstrings: msgspec before 0.23 leaves their indentation in."""
    drawn = msgspec.json.schema(Status)
    for definition in drawn["$defs"].values():
        definition["description"] = cleandoc(definition["description"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "sluice status", **drawn}
