"""Tables as a whole: created, attached, given back, dropped, recovered and examined, and their properties.

Imports `client`, `write` and `maintain`. Begin with `creation.py`."""
