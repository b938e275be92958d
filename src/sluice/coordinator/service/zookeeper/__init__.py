"""The protocol of `service.store` over kazoo, which only `session.py` imports."""
