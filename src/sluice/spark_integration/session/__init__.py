"""Sessions made for sluice: their settings, and their `read`, `table`, `write` and `writeTo`.

It imports every other room. Begin with `configuration`, then `routing`.
"""
