"""Write the schema of the status document: `python -m tests.operating`."""

from __future__ import annotations

import json

from tests.operating.schema import PATH, schema

if __name__ == "__main__":
    PATH.write_text(json.dumps(schema(), indent=2) + "\n")
