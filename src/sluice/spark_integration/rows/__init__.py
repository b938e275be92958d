"""Rows that Spark's tasks find and change for a transaction of the user's own process.

`change` deletes and updates, `merge` merges, in one pass over the table (docs/decisions/0020); `change_job` and `writer` are what
they share. It imports `files`, `scan` and `data_source`. Begin with `change`.
"""
