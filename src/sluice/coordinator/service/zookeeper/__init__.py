"""The protocol of `service.store` over kazoo; only `session.py` imports that."""
