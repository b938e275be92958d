"""Tables as programs use them: `sluice.Table`, transactions over one table and over several.

The modules at the root are the face. Below it are rooms, each of which imports only those after it:

- `manage` and `read`: tables as a whole; versions, changes and history
- `maintain`: compaction, vacuum, checkpoints
- `write`: from what an operation wants to a commit
- `client`: this process as a client of a table

Imports `coordinator` and `storage`.
"""
