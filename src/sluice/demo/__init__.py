"""`sluice demo`: six processes work on one table at once, and a check afterwards proves that nothing was lost.

Imports the floors below as users' programs do. Begin with `run.py`; `proof.py` has the statements that are checked.
"""
