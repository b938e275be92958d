"""The table API: `sluice.Table`, and transactions over one table and over several.

The modules at the root are the public face, `catalog.py` above the others. Below it are rooms, each of which imports only those
after it:

- `manage` and `read`: tables as a whole; versions, changes and history
- `maintain`: compaction, vacuum, checkpoints
- `write`: turns an operation into the change to commit
- `client`: this process as a client of a table

Imports `coordinator` and `storage`. Begin with `table_writes.py`, the operations of `Table`, then `transaction.py`.
"""
