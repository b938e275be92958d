"""Cases for `sluice explain`: the rules applied to commits that a person describes.

Imports `rules`. Begin with `cases.py`, which reads a case; `decision.py` decides it.
"""
