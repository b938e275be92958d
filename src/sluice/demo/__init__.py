"""`sluice demo`: six processes work on one table at once, and the proof that nothing was lost. See `run.py`."""
