"""Files of a DataFrame's rows, written by Spark for a plan of the user's own process.

`writing` chooses: `spark_writer` has Spark's own Parquet writer write them, `task_writer` has Python tasks do it.
It imports `scan` and `data_source`. Begin with `writing`.
"""
