"""Publication: writes ratified versions into the log, in order and byte for byte, then removes nodes that are not needed any more.

Imports `leases` and the rooms below. Begin with `publisher.py`; `rendering.py` says what a version's bytes are."""
