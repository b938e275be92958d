"""Servers for developing against sluice on one machine; needs the extra `sluice-delta[dev]`.

Imports only the errors of `storage`. Begin with `moto_server.py`: an S3 server in its own process.
"""
