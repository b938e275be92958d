"""`make demo`, or `python -m examples.demo` in a clone: six processes work on one table at once, and nothing is lost.

Begin with `run.py`; `proof.py` has the statements that are checked afterwards.
"""
