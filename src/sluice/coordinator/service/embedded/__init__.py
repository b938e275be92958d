"""A real ZooKeeper on this machine for users without one: the first client starts it, the last one stops it.

Imports only the errors. Begin with `lifecycle.py`, which a client calls; `supervisor.py` is the process that runs the server.
"""
