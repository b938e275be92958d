"""Object stores: the protocol that sluice needs, and its implementations on disk, in S3, in Azure and in memory.

Imports only the root of `storage`. Begin with `objects.py`: the protocol and what each call promises.
"""
