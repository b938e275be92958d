"""Write the schema of the status document: `python -m tests.operating`."""

from __future__ import annotations

import json
from pathlib import Path

from sluice.operating.document import FORMAT, schema

if __name__ == "__main__":
    path = Path(__file__).parents[2] / "docs" / "reference" / f"status-{FORMAT}.schema.json"
    path.write_text(json.dumps(schema(), indent=2) + "\n")
