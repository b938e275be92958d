"""Sessions made for sluice: their `read`, `table`, `write`, `writeTo` and streams.

It imports every other room. Begin with `routing`; `sluice.configure` (`spark_session.py` at the root) makes the session.
"""
