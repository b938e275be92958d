"""Decides which transactions commit, in which order, and which of them conflict.

Rooms, each of which imports only those after it:

- `admission`: turns a change into an intent, compares it with earlier commits, and waits for leases that stop it
- `commit`: filing, deciding and ratifying transactions, and finding them again
- `publication`: ratified versions become files of the log
- `leases`: leases, turns and pins, granted in fair order
- `catalog`: the names of tables
- `nodes`: the contents of the coordinator's tree
- `rules`: which of two transactions conflict; pure
- `service`: the protocol for ZooKeeper, sessions over kazoo, the twin in memory, the embedded server

`api.py` names what the floors above use. `errors.py` has the errors of committing, `health.py` decides whether a server may be taken out,
`examination.py` finds what is wrong with a table's nodes. Imports `storage` only.
Begin with `commit/table.py`, what a client keeps for one table, then `commit/transactions.py`.
"""
