"""Object stores: the protocol that sluice asks for, and its implementations on disk, in S3 and in memory.

Imports only the root of `storage`. Begin with `objects.py`: the protocol, with what each call promises."""
