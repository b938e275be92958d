"""Files of a DataFrame's rows, written by Spark for a plan of the user's own process.

`writing` has Spark's own Parquet writer write them, or Python tasks (`task_writer`), and `filling` computes what their writer fills in.
It imports `scan` and `data_source`. Begin with `writing`.
"""
