"""What keeps a table small and quick: compaction, z-order, checkpoints, and the removal of what nobody needs.

Imports `client` and `write`. Begin with `compaction.py` and `vacuum.py`."""
