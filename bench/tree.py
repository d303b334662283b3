"""
What a process and all its descendants cost, read from ``/proc``.

CPU time counts every process of the tree, the dead ones too. Memory is the sum of PSS (proportional set size): a
page that forked Python workers share counts once, where the sum of their resident sizes would count it for each.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import attrs


PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@attrs.frozen
class ProcessStat:
    """One line of ``/proc/<pid>/stat``; times in clock ticks."""

    pid: int
    parent: int
    name: str
    started: int
    own: int
    waited_for: int

    @classmethod
    def parse(cls, line: str) -> ProcessStat:
        """Read the line; the name is in parentheses and may itself contain some."""
        pid, _, rest = line.partition(" (")
        name, _, tail = rest.rpartition(") ")
        fields = tail.split()
        own = int(fields[11]) + int(fields[12])
        waited_for = int(fields[13]) + int(fields[14])
        return cls(int(pid), int(fields[1]), name, int(fields[19]), own, waited_for)


@attrs.frozen
class CpuUse:
    """CPU-seconds so far: of the whole tree, and of the Python processes below its JVM (Spark's Python workers)."""

    tree_s: float
    workers_s: float

    def since(self, earlier: CpuUse) -> CpuUse:
        """What was used after *earlier*."""
        return CpuUse(self.tree_s - earlier.tree_s, self.workers_s - earlier.workers_s)


def all_processes() -> dict[int, ProcessStat]:
    """Every process of this machine, by pid."""
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = ProcessStat.parse((entry / "stat").read_text())
            except OSError:  # it ended while we looked
                continue
            found[stat.pid] = stat
    return found


def tree_of(root: int, processes: dict[int, ProcessStat]) -> set[int]:
    """The pids of *root* and its descendants."""
    members = {root} & processes.keys()
    grown = True
    while grown:
        born = {stat.pid for stat in processes.values() if stat.parent in members} - members
        members |= born
        grown = bool(born)
    return members


def workers_of(members: Iterable[int], processes: dict[int, ProcessStat]) -> set[int]:
    """Those of *members* that are not a JVM but descend from one."""
    jvms = {pid for pid in members if processes[pid].name == "java"}
    below: set[int] = set()
    for jvm in jvms:
        below |= tree_of(jvm, processes)
    return {pid for pid in below if processes[pid].name != "java"}


class ProcessTree:
    """
    Watches one process and whatever it starts.

    A process once seen stays a member when its parent dies and it is handed to init. Between two looks a process may
    end: if its parent waited for it, its time is in the parent's; if not, what it had at the last look counts.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[tuple[int, int], ProcessStat] = {}
        self._workers: set[tuple[int, int]] = set()
        self.peak_pss_bytes = 0

    def cpu(self) -> CpuUse:
        """Look at the tree and sum its CPU time."""
        living = self._look()
        seen = sum(stat.own for stat in self._seen.values())
        waited = sum(stat.own + stat.waited_for for stat in living)
        workers = sum(self._seen[key].own for key in self._workers)
        return CpuUse(max(seen, waited) / TICKS_PER_S, workers / TICKS_PER_S)

    def sample_memory(self) -> int:
        """Sum the PSS of the tree now, in bytes, and keep the peak."""
        total = sum(pss_bytes(stat.pid) for stat in self._look())
        self.peak_pss_bytes = max(self.peak_pss_bytes, total)
        return total

    def kill(self) -> None:
        """End every process of the tree at once; the dead are left to their parents."""
        for stat in self._look():
            try:
                os.kill(stat.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _look(self) -> list[ProcessStat]:
        processes = all_processes()
        members = tree_of(self._root, processes)
        for pid, started in self._seen:
            if pid in processes and processes[pid].started == started:
                members |= tree_of(pid, processes)
        workers = workers_of(members, processes)
        for pid in members:
            stat = processes[pid]
            self._seen[pid, stat.started] = stat
            if pid in workers:
                self._workers.add((pid, stat.started))
        return [processes[pid] for pid in members]


@attrs.define
class Strangers:
    """
    How busy the machine was with processes that are not ours, from the moment this is made.

    Ours is whatever descends from this process: brokers, mirrors, probes. Time that a hypervisor took away counts as
    strangers'. Figures taken beside a busy stranger are not worth quoting.
    """

    _ours: ProcessTree = attrs.Factory(lambda: ProcessTree(os.getpid()))
    _since: float = attrs.Factory(time.monotonic)
    _before: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._before = self._used_s()

    def cores(self) -> float:
        """The mean number of cores that strangers kept busy."""
        return max(0.0, (self._used_s() - self._before) / (time.monotonic() - self._since))

    def _used_s(self) -> float:
        return busy_s((PROC / "stat").read_text()) - self._ours.cpu().tree_s


def busy_s(stat: str) -> float:
    """Seconds that all CPUs together did not idle, from the first line of ``/proc/stat``."""
    user, nice, system, _idle, _waiting, irq, softirq, steal = (int(field) for field in stat.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def pss_bytes(pid: int) -> int:
    """Return the memory of one process; 0 if it has ended."""
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it ended, or is a zombie without memory
        return 0
    return 0
