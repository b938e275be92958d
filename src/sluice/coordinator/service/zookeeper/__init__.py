"""The protocol of `service.store` over kazoo, which only `session.py` imports.

Imports the modules of `service`. Begin with `session.py`; `errors.py` maps kazoo's errors.
"""
