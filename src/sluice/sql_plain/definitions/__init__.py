"""Tables, columns and namespaces: how statements create, change, drop and show them.

Imports the modules at the root of `sql_plain`, not `concurrency`. Begin with `tables`.
"""
