"""How a transaction is committed: filed, decided, ratified, published, and found again.

Imports all other rooms. Begin with `committer.py`: the life of one transaction."""
