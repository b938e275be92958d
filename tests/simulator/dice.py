"""Chance that depends on where it is asked, not on what was asked before.

`Dice(seed).roll(client, call, purpose)` is the same number whatever else happened. So a history from which one fault or one
operation is taken away goes on as before where nothing depends on it, which is what makes a failing seed shrinkable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

_T = TypeVar("_T")
_MASK = 2**64 - 1


def _mixed(x: int) -> int:
    """The finaliser of splitmix64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


class Dice:
    """Numbers in [0, 1) by place. Places are tuples of small whole numbers."""

    def __init__(self, seed: int) -> None:
        self._seed = _mixed(seed * 2 + 1)

    def at(self, *place: int) -> Dice:
        """The dice for all places that begin with this one."""
        below = Dice(0)
        below._seed = self.bits(*place)
        return below

    def bits(self, *place: int) -> int:
        """64 bits for a place."""
        x = self._seed
        for each in place:  # what `_mixed` does, written out: this is called more than anything else
            x = (x + each * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK
            x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
            x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
            x ^= x >> 31
        return x

    def roll(self, *place: int) -> float:
        """A number in [0, 1)."""
        return (self.bits(*place) >> 11) / 2**53

    def choice(self, options: Sequence[_T], *place: int) -> _T:
        return options[self.bits(*place) % len(options)]


def weighted(weights: Mapping[str, float], roll: float) -> str:
    """The name that a number in [0, 1) falls on, where each name takes a share by its weight."""
    left = roll * sum(weights.values())
    for name, weight in weights.items():
        left -= weight
        if left < 0:
            return name
    return next(iter(weights))
