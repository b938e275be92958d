"""Tables, columns and namespaces: how statements create, change, drop and show them.

Imports the modules of `sql_plain` itself; `concurrency` knows nothing of it. Begin with `tables`.
"""
