"""The façade: everything that floors above ask of the coordinator; they import only this, `rules`, `errors`, `limits`, `times`
and `health`.

Each table has one object (`table.py`: `CoordinatedTable`, about eight verbs). Beside it: several tables as one
(`several.py`), leases on tables and names (`leasing.py`), and the values that travel both ways (`values.py`). `registry.py`
brings tables under the coordinator and removes them; `maintenance.py` serves garbage collection and checkpoints. Imports all
other rooms.
"""
