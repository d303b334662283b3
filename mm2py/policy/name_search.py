"""Searches for names that several lists of regular expressions all match, from the expressions alone. Each list
becomes an automaton over the 65 characters of topic names, and all of them are walked in parallel, the shortest names
first. Expressions whose language is not regular, and a few unusual ones, cannot be walked.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from mm2py.errors import Mm2Error


#: The characters of topic names; those that look like names come first.
ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789-_.ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_EVERY: Final = (1 << len(ALPHABET)) - 1
_BIT: Final = {char: 1 << at for at, char in enumerate(ALPHABET)}
_MOST_STATES: Final = 2_000
_BEGINNINGS = ("AT_BEGINNING", "AT_BEGINNING_STRING")
_ENDS = ("AT_END", "AT_END_STRING")

States = frozenset[int]


@attrs.define(eq=False)
class NotWalkableError(Mm2Error):
    """A regular expression cannot be converted to an automaton of reasonable size."""

    pattern: str
    reason: str

    def __str__(self) -> str:
        return f"{self.pattern!r} cannot be walked: {self.reason}"


class Automaton:
    """The automaton of a regular expression. The whole name must match."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        """Convert *pattern*. Raise `NotWalkableError` if that is impossible."""
        self._pattern = pattern.pattern
        if type(pattern) is not re.Pattern:
            raise NotWalkableError(self._pattern, "Python's re cannot express it")
        self._steps: list[list[tuple[int, int]]] = []
        self._free: list[list[int]] = []
        self._free_at_start: list[list[int]] = []
        self._free_at_end: list[list[int]] = []
        start = self._state()
        # Only the parser of Python's own re is certain to read expressions as re does.
        tree = importlib.import_module("re._parser").parse(pattern.pattern, pattern.flags)
        self._end = self._sequence(tree, start, tree.state.flags)
        self._start = self._closed({start}, self._free, self._free_at_start)
        self._known: dict[tuple[States, int], States] = {}

    @property
    def masks(self) -> set[int]:
        """The sets of characters that it distinguishes, as bits of `ALPHABET`."""
        return {mask for steps in self._steps for mask, _ in steps}

    # Walking.

    def walk(self, text: str, states: States | None = None) -> States:
        """Advance from *states*, or from the start, by *text*."""
        here = self._start if states is None else states
        for char in text:
            here = self._step(here, _BIT.get(char, 0))
        return here

    def accepts(self, states: States) -> bool:
        """Whether a name that led to *states* may end here."""
        return self._end in self._closed(states, self._free, self._free_at_end)

    def _step(self, states: States, bit: int) -> States:
        found = self._known.get((states, bit))
        if found is None:
            reached = {target for state in states for mask, target in self._steps[state] if mask & bit}
            found = self._known[states, bit] = self._closed(reached, self._free)
        return found

    def _closed(self, states: Iterable[int], *ways: list[list[int]]) -> States:
        reached, left = set(states), list(states)
        while left:
            state = left.pop()
            for target in (target for way in ways for target in way[state]):
                if target not in reached:
                    reached.add(target)
                    left.append(target)
        return frozenset(reached)

    # Building.

    def _state(self) -> int:
        if len(self._steps) >= _MOST_STATES:
            raise NotWalkableError(self._pattern, "it is too large")
        self._steps.append([])
        for ways in (self._free, self._free_at_start, self._free_at_end):
            ways.append([])
        return len(self._steps) - 1

    def _sequence(self, items: Any, state: int, flags: int) -> int:
        for op, argument in items:
            state = self._one(str(op), argument, state, flags)
        return state

    def _one(self, op: str, argument: Any, state: int, flags: int) -> int:
        if op in {"LITERAL", "NOT_LITERAL", "ANY", "IN"}:
            target = self._state()
            self._steps[state].append((_mask(op, argument, flags), target))
            return target
        if op == "BRANCH":
            return self._joined([self._sequence(branch, state, flags) for branch in argument[1]])
        if op == "SUBPATTERN":
            _, added, removed, items = argument
            return self._sequence(items, state, (flags | added) & ~removed)
        if op in {"MAX_REPEAT", "MIN_REPEAT"}:
            return self._repeat(argument, state, flags)
        if op == "AT" and str(argument) in _BEGINNINGS + _ENDS:
            target = self._state()
            (self._free_at_start if str(argument) in _BEGINNINGS else self._free_at_end)[state].append(target)
            return target
        raise NotWalkableError(self._pattern, f"{op} is not followed")

    def _joined(self, states: Sequence[int]) -> int:
        target = self._state()
        for state in states:
            self._free[state].append(target)
        return target

    def _repeat(self, argument: Any, state: int, flags: int) -> int:
        least, most, items = argument
        for _ in range(least):
            state = self._sequence(items, state, flags)
        if most > _MOST_STATES:  # without a bound
            begin = self._joined([state])
            self._free[self._sequence(items, begin, flags)].append(begin)
            return self._joined([begin])
        ends = [state]
        for _ in range(most - least):
            state = self._sequence(items, state, flags)
            ends.append(state)
        return self._joined(ends)


def _mask(op: str, argument: Any, flags: int) -> int:
    if op == "ANY":
        return _EVERY
    if op == "IN":
        is_negated = bool(argument) and str(argument[0][0]) == "NEGATE"
        mask = 0
        for kind, value in argument[1:] if is_negated else argument:
            mask |= sum(bit for char, bit in _BIT.items() if _holds(str(kind), value, char, flags))
        return _EVERY & ~mask if is_negated else mask
    literal = _literal(argument, flags)
    return _EVERY & ~literal if op == "NOT_LITERAL" else literal


@functools.cache  # there are few, and lists of names have tens of thousands of them
def _literal(code: int, flags: int) -> int:
    return sum(bit for char, bit in _BIT.items() if _holds("LITERAL", code, char, flags))


def _holds(kind: str, value: Any, char: str, flags: int) -> bool:
    if flags & re.IGNORECASE and kind in {"LITERAL", "RANGE"}:
        plain = flags & ~re.IGNORECASE
        return any(_holds(kind, value, form, plain) for form in (char.lower(), char.upper()))
    if kind == "LITERAL":
        return ord(char) == int(value)
    if kind == "RANGE":
        return bool(value[0] <= ord(char) <= value[1])
    is_there = {"DIGIT": char.isdigit(), "WORD": char.isalnum() or char == "_", "SPACE": False}
    name = str(value).removeprefix("CATEGORY_")
    return is_there[name] if name in is_there else not is_there[name.removeprefix("NOT_")]


# Walking several in parallel.

Starts = Mapping[object, tuple[Automaton, str]]
Reached = Mapping[object, States]


def walk_together(starts: Starts) -> Iterator[tuple[str, Reached]]:
    """
    Walk automata in parallel, each after its own prefix: return the shortest name for each combination of states.

    Raise `NotWalkableError` when there are too many of them.
    """
    keys = list(starts)
    machines = [starts[key][0] for key in keys]
    first = tuple(machine.walk(starts[key][1]) for key, machine in zip(keys, machines, strict=True))
    signs = _signs({mask for machine in machines for mask in machine.masks})
    seen, waiting = {first}, deque([("", first)])
    while waiting:
        word, here = waiting.popleft()
        if word:
            yield word, dict(zip(keys, here, strict=True))
        for sign in signs:
            there = tuple(machine.walk(sign, states) for machine, states in zip(machines, here, strict=True))
            if there in seen:
                continue
            if len(seen) >= _MOST_STATES:
                raise NotWalkableError(word + sign, "there are too many combinations")
            seen.add(there)
            waiting.append((word + sign, there))


def _signs(masks: Iterable[int]) -> list[str]:
    """Return one character of each class: those that no mask distinguishes are equivalent."""
    known = sorted(masks)
    kinds: dict[tuple[bool, ...], str] = {}
    for char, bit in _BIT.items():
        kinds.setdefault(tuple(bool(mask & bit) for mask in known), char)
    return list(kinds.values())
