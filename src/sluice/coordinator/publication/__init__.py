"""How ratified versions become files of the log, in order and byte for byte, and what goes once they are there.

Imports `leases` and the rooms below. Begin with `publisher.py`; `rendering.py` says what a version's bytes are."""
