"""What a mutation is: a check of the protocol, how it is taken out, and what has to notice."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COORDINATOR", "FEW_SEEDS", "FEW_WORLDS", "SEEDS", "TABLES", "Edit", "Mutation", "edit"]

COORDINATOR = "src/sluice/coordinator/"
TABLES = "src/sluice/tables/"
SEEDS = "0..79"
"""The seeds that are tried where the simulator is asked: the first that breaks a promise ends it."""
FEW_SEEDS = "0..19"
"""Those that are tried for every mutation where all evidence is asked."""
FEW_WORLDS = ("direct", "queue", "lost", "lost-direct", "joint", "lease")
"""The small worlds that are tried then."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that stands exactly once in a file (below the root of the repository), and what it is replaced by."""

    file: str
    text: str
    instead: str

    def applied(self, content: str) -> str:
        """The content with the text replaced. Raises ValueError unless it is there once."""
        found = content.count(self.text)
        if found != 1:
            raise ValueError(f"{self.file} holds {found} times, and not once: {self.text!r}")
        return content.replace(self.text, self.instead)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A check and how it is taken out.

    `breaks` is the invariant it holds (I1 to I12), or in a word what it is for. `tests` are those that notice, as pytest names
    them, the quickest first; `seeds` are those of the simulator in which one notices, `worlds` the small worlds that do.
    A mutation nothing can notice has in `accepted` the reason why the check may be missing and stays all the same.
    """

    name: str
    breaks: str
    what: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()
    worlds: tuple[str, ...] = ()
    seeds: str = ""
    accepted: str = ""


def edit(file: str, text: str, instead: str) -> tuple[Edit, ...]:
    """The edits of a mutation that has one; put together with `+` for one that has several."""
    return (Edit(file, text, instead),)
