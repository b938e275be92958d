"""SQL on Spark: statements about tables of sluice are carried out here, all others by Spark as they were typed.

`running` sends each statement to the module of its family. `statements` (a lower floor) says what a text is.
"""
