"""What sluice asks of a coordination service: a small protocol, real sessions over kazoo, and a twin in memory.

Imports nothing of the other rooms. Begin with `store.py`: the protocol, with what each request promises."""
