"""Files of a DataFrame's rows, written by Spark for a plan of the user's own process.

`writing` chooses: `spark_writer` has Spark's own Parquet writer write them, `task_writer` has Python tasks do it. `tasks` runs functions in
Spark's tasks and brings back what they return. It imports `scan` and `data_source`. Begin with `writing`.
"""
