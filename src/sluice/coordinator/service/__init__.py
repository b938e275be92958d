"""The coordination service: a small protocol, real sessions over kazoo, and a twin in memory.

Imports no other room of the coordinator. Begin with `store.py`: the protocol and what each request promises.
"""
