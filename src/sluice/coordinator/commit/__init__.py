"""How a transaction is committed: filed, decided, ratified, and found again.

Imports `publication`, `leases` and the rooms below. Begin with `driver.py` and `next_step.py`: the life of one transaction."""
