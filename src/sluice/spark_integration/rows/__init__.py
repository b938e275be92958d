"""Rows that Spark's tasks find and change for a transaction of the user's own process.

`merge` merges, updates and deletes in one pass over the table (docs/decisions/0020): it names the steps and their modules. It imports
`writing`, `scan` and `data_source`. Begin with `merge`.
"""
