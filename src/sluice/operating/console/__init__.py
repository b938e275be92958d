"""`sluice console`: a page that shows the status of a coordinator and its tables, live, and each table from near.

Imports `operating` and below; nothing imports it but the command. Begin with `application.py`, which says what is served; `watcher.py`
looks, `table_page.py` reads one table, `actions.py` does what a token allows, `guard.py` says who is answered. `static/` is
what the browser gets.
"""
