"""Windows: winners that a transaction meets one after the other, and whose files it compares with its conditions together.

Arrow takes about as long for one file as for a hundred. A file's answer never depends on other files, so a window changes how
long a decision takes, and never what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from ...storage.actions import AddFile
from .winner import Winner

__all__ = ["Window", "windows"]

_WINNERS_MAX: Final = 256
"""The most winners whose files are looked at together: work that is wasted if the first of them stops the transaction."""


class Window:
    """Winners in the order of their versions."""

    __slots__ = ("_picked", "winners")

    def __init__(self, winners: Sequence[Winner]) -> None:
        self.winners = winners
        self._picked: dict[Hashable, Mapping[int, list[AddFile]]] = {}

    def picked(
        self,
        winner: Winner,
        question: Hashable,
        candidates: Callable[[Winner], Sequence[AddFile]],
        pick: Callable[[Sequence[AddFile]], list[AddFile]],
    ) -> Sequence[AddFile]:
        """The files that `pick` selects from the `candidates` of one of the winners.

        The first call with a question selects from the candidates of all winners; `pick` judges each file by itself.
        """
        known = self._picked.get(question)
        if known is None:
            known = self._picked[question] = self._pick(candidates, pick)
        return known.get(id(winner), ())

    def _pick(
        self, candidates: Callable[[Winner], Sequence[AddFile]], pick: Callable[[Sequence[AddFile]], list[AddFile]]
    ) -> Mapping[int, list[AddFile]]:
        """The selected files by the identity of their winner."""
        named = {id(winner): files for winner in self.winners if (files := candidates(winner))}
        if len(named) < 2:
            return {winner: pick(files) for winner, files in named.items()}
        found = {id(add) for add in pick([add for files in named.values() for add in files])}
        return {winner: [add for add in files if id(add) in found] for winner, files in named.items()} if found else {}


def windows(winners: Iterable[Winner]) -> Iterator[Window]:
    """The winners in windows, in their order."""
    left = iter(winners)
    while some := tuple(islice(left, _WINNERS_MAX)):
        yield Window(some)
