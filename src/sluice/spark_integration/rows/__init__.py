"""Rows that Spark's tasks find and write for a transaction of the user's own process.

`change` deletes and updates, `merge` merges, in one pass over the table (docs/decisions/0020); `work` and `writer` are what they
share. `writing` writes a DataFrame's rows, by `spark_files` or `dataframes`. It imports `scan` and `data_source`. Begin with `change`.
"""
