"""`sluice demo`: six processes work on one table at once, and prove that nothing was lost. See `run.py`."""
