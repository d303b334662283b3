"""Make a failure smaller: leave out faults while it still fails, half of them first, then one by one."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from tests.simulated.options import Options
from tests.simulated.sweep import run_apart
from tests.simulated.world import Result


def happened(result: Result) -> list[int]:
    """Return the numbers of the faults of a run."""
    return [int(line.partition(" ")[0][1:]) for line in result.faults if line.startswith("#")]


def shrunk(
    options: Options, result: Result, *, tries: int, run: Callable[[Options], Result] = run_apart
) -> tuple[Options, Result]:
    """Return the smallest run that was found to fail within so many *tries*, and its result."""
    numbers = happened(result)
    if not numbers:
        return options, result
    size = max(1, len(numbers) // 2)
    while tries > 0:
        is_smaller = False
        for at in range(0, len(numbers), size):
            tries -= 1
            left = numbers[:at] + numbers[at + size :]
            attempt = _only(options, left)
            found = run(attempt)
            if found.violations:
                options, result, numbers, is_smaller = attempt, found, left, True
                break
            if tries <= 0:
                break
        if not is_smaller:
            if size == 1:
                break
            size = max(1, size // 2)
    return options, result


def _only(options: Options, numbers: list[int]) -> Options:
    last = max(numbers, default=0)
    kept = set(numbers)
    return attrs.evolve(options, skipped=[it for it in range(last + 1) if it not in kept], last_fault=last)
