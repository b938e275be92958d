"""What SQL statements say: their kinds, the places of names and expressions in the text. Pure: text in, frozen dataclasses out.

Expressions are never parsed here; they stay the engine's own text. Imports `storage`. Begin with `reading`.
"""
