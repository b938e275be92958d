"""DuckDB with its extension for Delta tables: for each line of its standard input it copies a table's version to a Parquet file.

It runs in an environment of its own, which has the DuckDB that the extension was built for, and knows nothing of sluice.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_delta  # type: ignore[import-not-found,unused-ignore]

__all__: list[str] = []


def main() -> None:
    """Answer each request with a line: an empty one, or what went wrong."""
    [extension] = Path(str(duckdb_extension_delta.__file__)).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute(f"LOAD '{extension}'")
    for line in sys.stdin:
        request = json.loads(line)
        version = "" if request["version"] is None else f", version = {int(request['version'])}"
        table, file = (str(request[name]).replace("'", "''") for name in ("read", "into"))
        try:
            connection.execute(f"COPY (SELECT * FROM delta_scan('{table}'{version})) TO '{file}' (FORMAT parquet)")
        except duckdb.Error as error:
            print(json.dumps(str(error)), flush=True)
        else:
            print('""', flush=True)


if __name__ == "__main__":
    main()
