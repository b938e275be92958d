"""Decides which transactions commit, in which order, and which of them conflict.

Rooms, each of which imports only those after it:

- `facade`: everything that the floors above may ask for, as one object per table
- `admission`: turns a change into an intent, compares it with earlier commits, and waits for leases that stop it
- `commit`: filing, deciding and ratifying transactions, and finding them again
- `publication`: ratified versions become files of the log
- `leases`: leases, turns and pins, granted in fair order
- `catalog`: the names of tables
- `nodes`: the contents of the coordinator's tree
- `rules`: which of two transactions conflict; pure
- `service`: the protocol for ZooKeeper, sessions over kazoo, the twin in memory, the embedded server

`errors.py` has the errors of committing, `health.py` decides whether a server may be taken out. Imports `storage` only.
Begin with `facade/table.py`, then `commit/driver.py`.
"""
