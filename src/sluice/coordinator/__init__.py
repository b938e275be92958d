"""Decides which transactions commit, in which order, and which of them conflict.

Rooms, each of which imports only those after it:

- `commit`: a transaction is filed, decided, ratified, published, and found again
- `leases`: what a client holds for others to see (leases, turns, pins), granted in fair order
- `nodes`: what lies in the coordinator's tree
- `rules`: which of two transactions wins; pure
- `service`: what is asked of ZooKeeper: the protocol, sessions over kazoo, the twin in memory, the embedded server

`errors.py` has the errors of committing, `health.py` tells whether a server may be taken out. Imports `storage` only.
"""
