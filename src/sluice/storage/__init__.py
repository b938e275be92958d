"""Object stores, the Delta log, schemas, conditions and data files.

Rooms, each of which imports only those after it:

- `data`: data files and deletion vectors
- `log` and `pruning`: the transaction log and its snapshots; what statistics prove about files
- `actions` and `expressions`: the actions of the log; conditions and expressions of Spark SQL
- `schema` and `stores`: the types of Delta and Arrow; objects on disk, in S3 and in memory

`errors.py` has the root of all errors. Imports no other floor. Begin with `log/snapshot.py`, a version of a table.
"""
