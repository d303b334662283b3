"""Where two sequences of records, which differ at their beginning, are the same again; and what moved before that."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Sequence

from mm2py.verify.terms import SOURCE, TARGET, Mark


#: Number of consecutive equal records that form an anchor.
ANCHOR = 4
#: A record's further places that are tried, where many have one content.
_PLACES = 16


def find_anchor(source: Sequence[Mark], target: Sequence[Mark], are_over: tuple[bool, ...]) -> tuple[int, int] | None:
    """Find the nearest point from which both sides are equal for a while. *are_over* tells whether a side has no more
    records: then a shorter match is sufficient.
    """
    places: dict[Mark, list[int]] = {}
    for j, mark in enumerate(target):
        some = places.setdefault(mark, [])
        if len(some) < _PLACES:
            some.append(j)
    best: tuple[int, int] | None = None
    for i, mark in enumerate(source):
        if best is not None and i >= sum(best):
            break
        for j in places.get(mark, ()):
            if best is not None and i + j >= sum(best):
                break
            if _is_anchor(source, i, target, j, are_over):
                best = i, j
                break
    return best


def _is_anchor(source: Sequence[Mark], i: int, target: Sequence[Mark], j: int, are_over: tuple[bool, ...]) -> bool:
    length = min(ANCHOR, len(source) - i, len(target) - j)
    if source[i : i + length] != target[j : j + length]:
        return False
    reaches_end = (are_over[SOURCE] and i + length == len(source)) or (are_over[TARGET] and j + length == len(target))
    return length == ANCHOR or reaches_end


def paired(source: Sequence[Mark], target: Sequence[Mark]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """
    Pair records that are the same on both sides: those in order, and those that must have moved.

    As few as possible have moved.
    """
    waiting: dict[Mark, deque[int]] = {}
    for j, mark in enumerate(target):
        waiting.setdefault(mark, deque()).append(j)
    pairs = [(i, waiting[mark].popleft()) for i, mark in enumerate(source) if waiting.get(mark)]
    kept = set(_longest_rising([j for _, j in pairs]))
    in_order = [pair for at, pair in enumerate(pairs) if at in kept]
    return in_order, [pair for at, pair in enumerate(pairs) if at not in kept]


def _longest_rising(numbers: Sequence[int]) -> Collection[int]:
    """Return the places of the longest subsequence that only rises."""
    ends: list[int] = []
    places: list[int] = []
    before: list[int] = []
    for at, number in enumerate(numbers):
        rank = bisect_left(ends, number)
        before.append(places[rank - 1] if rank else -1)
        if rank == len(ends):
            ends.append(number)
            places.append(at)
        else:
            ends[rank], places[rank] = number, at
    found: list[int] = []
    at = places[-1] if places else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found
