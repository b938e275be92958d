"""The façade: everything that the floors above ask of the coordinator. They import only this, `rules`, `errors`, `limits`,
`times` and `health`.

Begin with `table.py`: each table is one object, `CoordinatedTable`, with about eight verbs. `multi_table.py` commits to
several tables, `leasing.py` takes leases on tables and names and holds consumers, `values.py` has the values that travel both
ways. `registry.py` brings tables under the coordinator and removes them; `maintenance.py` serves garbage collection and
checkpoints. Imports all other rooms of the coordinator.
"""
