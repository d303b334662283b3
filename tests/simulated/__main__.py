"""The command line of the simulation: see `scripts/simulate --help` and README.md beside this file."""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.simulated.bugs import Bug, bug_base
from tests.simulated.coverage import codes_never_answered, events_never_seen
from tests.simulated.mutants import MUTANTS, SHOWN_BY
from tests.simulated.options import Options, swarm
from tests.simulated.shrink import shrunk
from tests.simulated.sweep import Run, run_all, run_apart
from tests.simulated.world import Result


_SEEDS_A_DAY = 100_000
#: A mutant that so many seeds do not notice lacks an invariant, or a fault.
_MOST_SEEDS = 200
_LAST_LINES = 60
_LINE = 240
#: Events that say that work goes on.
_USUAL = ("EpochEnded(", "OffsetSyncsWritten(", "TranslationsWritten(", "PositionsWritten(", "GroupOffsetsSynced(",
          "CheckpointsWritten(", "TopicsRefreshed(", "FlowSummary(")  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description="Run whole mirrors in virtual time, by seed.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="one run, whose options a swarm draws from this number")
    which.add_argument("--options", help="one run by options in JSON, as a failure prints them; or a file with them")
    which.add_argument("--mutants", action="store_true", help="break the product in each way; say which seed notices")
    which.add_argument("--bugs", action="store_true", help="the runs that once failed (tests/simulated/bugs)")
    parser.add_argument("--seeds", type=int, default=0, help="so many runs, one after the other")
    parser.add_argument("--hours", type=float, default=0.0, help="as many runs as take so long")
    parser.add_argument("--from", type=int, dest="first", help="the first seed; by default it comes from the date")
    parser.add_argument("--mutant", choices=MUTANTS, help="break the product in this way")
    parser.add_argument("--jobs", type=int, default=1, help="so many runs at a time")
    parser.add_argument("--with", dest="over", type=json.loads, default={}, help="options in JSON over what seeds draw")
    parser.add_argument("--twice", action="store_true", help="each run twice; a difference is a failure")
    parser.add_argument("--digests", action="store_true", help="print each run's digest")
    parser.add_argument("--timeline", type=Path, help="a file for all that happened in one run")
    parser.add_argument("--tries", type=int, default=40, help="runs to make a failure smaller with")
    return parser.parse_args()


def main() -> int:
    """Run what was asked for; 1 if anything was violated."""
    arguments = _arguments()
    if arguments.mutants:
        return max([Hunt(arguments, name).run() for name in MUTANTS])
    if arguments.mutant is not None and not (arguments.options or arguments.seed):
        return Hunt(arguments, arguments.mutant).run()
    if arguments.seed is not None:
        return _one(_drawn(arguments.seed, arguments), arguments)
    if arguments.options is not None:
        file = Path(arguments.options)
        is_file = arguments.options.endswith(".json") and file.exists()
        return _one(Bug.read(file).options if is_file else Options.from_json(json.loads(arguments.options)), arguments)
    if arguments.bugs:
        return _bugs(arguments)
    return Sweep(arguments).run()


def _drawn(seed: int, arguments: argparse.Namespace) -> Options:
    return attrs.evolve(swarm(seed), **arguments.over)


def _one(options: Options, arguments: argparse.Namespace) -> int:
    run = Run(options, keeps=arguments.timeline is not None)
    if arguments.mutant is not None:
        run = attrs.evolve(run, broken=MUTANTS[arguments.mutant])
    ((_, result),) = run_all([run])
    if arguments.timeline is not None:
        arguments.timeline.write_text("\n".join(result.timeline) + "\n")
    print(options.to_json())
    print(*result.faults, sep="\n")
    rate = result.virtual_s / max(result.cpu_s, 0.01)
    print(
        f"{result.virtual_s} virtual s in {result.cpu_s} s of CPU ({rate:.0f} times as fast), {result.records} records,"
    )
    print(f"{sum(result.requests.values())} requests, {result.rss_mb} MiB, digest {result.digest[:16]}")
    _print_counts("requests", result.requests)
    _print_counts("events", result.events)
    _print_counts("error codes", result.codes)
    print(*[f"VIOLATION {it}" for it in result.violations], sep="\n")
    return bool(result.violations)


def _print_counts(title: str, counts: dict[str, int]) -> None:
    print(f"{title}: {', '.join(f'{name} {count}' for name, count in collections.Counter(counts).most_common())}")


def _bugs(arguments: argparse.Namespace) -> int:
    known = {bug.options: bug for bug in bug_base()}
    done = run_all(map(Run, known), jobs=arguments.jobs)
    return max([_bug(known[run.options], result) for run, result in done], default=0)


def _bug(bug: Bug, result: Result) -> int:
    print(f"{bug.name}: {'FAILS AGAIN' if result.violations else 'well'} in {result.cpu_s} s ({bug.sentence})")
    if result.violations:
        _explain(bug.options, result, tries=0)
    return bool(result.violations)


def _first_seed(arguments: argparse.Namespace) -> int:
    today = int(time.strftime("%Y%m%d", time.gmtime()))
    return today * _SEEDS_A_DAY if arguments.first is None else int(arguments.first)


class Hunt:
    """Seeds until one notices that the product is broken; see `mutants.py`."""

    def __init__(self, arguments: argparse.Namespace, name: str) -> None:
        self._name, self._first = name, _first_seed(arguments)
        self._most = arguments.seeds or _MOST_SEEDS

    def run(self) -> int:
        """Say after how many seeds it was noticed, and by what; 1 if it was not."""
        broken, over = MUTANTS[self._name], SHOWN_BY.get(self._name, {})
        for seed in range(self._first, self._first + self._most):
            if found := run_apart(attrs.evolve(swarm(seed), **over), broken=broken).violations:
                print(f"| {self._name} | {broken.__doc__} | {seed - self._first + 1} | {found[0]:.160} |", flush=True)
                return 0
        print(f"| {self._name} | {broken.__doc__} | not within {self._most} | |", flush=True)
        return 1


class Sweep:
    """Many seeds."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._first = _first_seed(arguments)
        self._runs = self._failures = self._faults = self._virtual_s = self._records = 0
        self._codes: collections.Counter[str] = collections.Counter()
        self._events: collections.Counter[str] = collections.Counter()

    def run(self) -> int:
        """Run seeds until there were enough of them, or the time is over."""
        begun = time.perf_counter()
        print(f"seeds from {self._first}, {_commit()}", flush=True)
        for run, result in run_all(self._drawn(begun), jobs=self._arguments.jobs):
            self._take(run.options, result)
            if self._runs % 20 == 0:
                self._report(time.perf_counter() - begun)
        self._report(time.perf_counter() - begun)
        print(f"events that no run had: {', '.join(events_never_seen(self._events))}")
        print(f"error codes that no run was answered: {', '.join(codes_never_answered(self._codes))}")
        return bool(self._failures)

    def _drawn(self, begun: float) -> Iterator[Run]:
        arguments = self._arguments
        most = arguments.seeds or (sys.maxsize if arguments.hours else 100)
        for seed in range(self._first, self._first + most):
            if arguments.hours and time.perf_counter() - begun > arguments.hours * 3600:
                return
            yield Run(_drawn(seed, arguments))

    def _take(self, options: Options, result: Result) -> None:
        if self._arguments.twice and run_apart(options).digest != result.digest:
            result.violations.append("the same seed was another run the second time")
        if self._arguments.digests:
            print(f"digest {options.seed} {result.digest} {result.cpu_s}", flush=True)
        self._runs += 1
        self._faults += len(result.faults)
        self._virtual_s += round(result.virtual_s)
        self._records += result.records
        self._events.update(result.events)
        self._codes.update(result.codes)
        if result.violations:
            self._failures += 1
            _explain(options, result, tries=self._arguments.tries)

    def _report(self, spent_s: float) -> None:
        rate = f"{spent_s / self._runs:.1f} s each, {self._virtual_s / 3600:.1f} virtual hours"
        what = f"{self._faults} faults, {self._records} records; {self._failures} failed"
        print(f"{self._runs} seeds in {spent_s:.0f} s ({rate}), {what}", flush=True)


def _explain(options: Options, result: Result, *, tries: int) -> None:
    """Print a failure: what it is, how to see it again, the fewest faults that bring it about, and its time line."""
    print(f"FAILED, seed {options.seed}, {_commit()}", *[f"  {it}" for it in result.violations[:5]], sep="\n")
    print(f"  scripts/simulate --options '{options.to_json()}'", flush=True)
    options, result = shrunk(options, result, tries=tries)
    print("with fewer faults:", *[f"  {it}" for it in [*result.violations[:3], *result.faults]], sep="\n")
    print(f"  scripts/simulate --options '{options.to_json()}'", flush=True)
    lines = [it for it in run_apart(options, keeps=True).timeline if not any(event in it for event in _USUAL)]
    print("what happened last:", *[line[:_LINE] for line in lines[-_LAST_LINES:]], sep="\n  ", flush=True)


def _commit() -> str:
    asked = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return f"commit {asked.stdout.strip() or 'unknown'}"


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") in (None, "random"):  # sets of strings have one order, whoever starts it
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulated", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
