"""Who wins: isolation levels, policies, and what two transactions did to the same files and rows. Pure; asks nobody.

Imports nothing of the other rooms. Begin with `conflicts.py`: the rules as a table, in the order in which they are checked."""
