"""What a process tree costs is counted once, and completely."""

import os
import subprocess
import sys
import time

import pytest

from bench import tree
from bench.tree import ProcessStat, ProcessTree


def stat_line(pid: int, parent: int, name: str, *, own: int = 0, waited_for: int = 0) -> str:
    before_times = f"{parent} " + "0 " * 9
    return f"{pid} ({name}) S {before_times}{own} 0 {waited_for} 0 20 0 1 0 {pid * 10} 0 0"


def processes(*lines: str) -> dict[int, ProcessStat]:
    found = [ProcessStat.parse(line) for line in lines]
    return {stat.pid: stat for stat in found}


def test_stat_line_is_read_whatever_the_name_contains() -> None:
    """A name with spaces and parentheses does not shift the fields."""
    stat = ProcessStat.parse(stat_line(7, 3, "a (b) c", own=5, waited_for=2))

    assert (stat.pid, stat.parent, stat.name, stat.own, stat.waited_for, stat.started) == (7, 3, "a (b) c", 5, 2, 70)


def test_tree_holds_only_descendants_of_every_generation() -> None:
    """Children of children belong to it, neighbours do not."""
    machine = processes(
        stat_line(1, 0, "init"),
        stat_line(10, 1, "python"),
        stat_line(12, 11, "python"),
        stat_line(11, 10, "java"),
        stat_line(20, 1, "java"),
    )

    assert tree.tree_of(10, machine) == {10, 11, 12}
    assert tree.tree_of(99, machine) == set()


def test_workers_are_what_runs_below_the_jvm() -> None:
    """The driver above the JVM and the JVM itself are not copy workers."""
    machine = processes(
        stat_line(10, 1, "python"),
        stat_line(11, 10, "java"),
        stat_line(12, 11, "python"),
        stat_line(13, 12, "python"),
        stat_line(14, 10, "python"),
    )

    assert tree.workers_of({10, 11, 12, 13, 14}, machine) == {12, 13}


def test_cpu_of_a_process_without_a_waiting_parent_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that vanished between two looks keeps what it had used, and an orphan stays a member."""
    looks = iter(
        [
            processes(
                stat_line(10, 1, "python", own=100),
                stat_line(11, 10, "java", own=200),
                stat_line(12, 11, "python", own=50),
                stat_line(13, 11, "python", own=30),
            ),
            processes(stat_line(10, 1, "python", own=110), stat_line(12, 1, "python", own=60)),
        ]
    )
    monkeypatch.setattr(tree, "all_processes", lambda: next(looks))
    watched = ProcessTree(10)
    used = [watched.cpu() for _ in range(2)]

    assert [round(each.tree_s * tree.TICKS_PER_S) for each in used] == [380, 400]
    assert [round(each.workers_s * tree.TICKS_PER_S) for each in used] == [80, 90]


def test_cpu_of_children_that_were_waited_for_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child too short-lived to be seen is in its parent's account."""
    monkeypatch.setattr(tree, "all_processes", lambda: processes(stat_line(10, 1, "python", own=100, waited_for=40)))

    assert round(ProcessTree(10).cpu().tree_s * tree.TICKS_PER_S) == 140


def test_idle_time_is_not_busy_time() -> None:
    """Idling and waiting for disks is left out, stolen time is not."""
    ticks = tree.TICKS_PER_S
    line = (
        f"cpu  {ticks} {ticks} {ticks} {50 * ticks} {70 * ticks} {ticks} {ticks} {ticks} 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0"
    )

    assert tree.busy_s(line) == 6.0


def test_memory_of_a_real_process_is_measured() -> None:
    """PSS of a running interpreter is some megabytes, and the peak is kept."""
    watched = ProcessTree(os.getpid())
    now = watched.sample_memory()

    assert now > 2**20
    assert watched.peak_pss_bytes == now


def test_kill_ends_the_whole_tree() -> None:
    """A child outlives neither its parent nor the watch."""
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with subprocess.Popen([sys.executable, "-c", nested]) as parent:
        watched = ProcessTree(parent.pid)
        deadline = time.monotonic() + 10
        while len(tree.tree_of(parent.pid, tree.all_processes())) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        members = tree.tree_of(parent.pid, tree.all_processes())
        watched.kill()
        parent.wait(10)
        # A killed process may run for a moment longer, and this process cannot wait for the child.
        while any(_runs(pid) for pid in members) and time.monotonic() < deadline:
            time.sleep(0.02)

    assert len(members) == 2
    assert not any(_runs(pid) for pid in members)


def _runs(pid: int) -> bool:
    stat = tree.all_processes().get(pid)
    return stat is not None and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status") as status:  # noqa: PTH123  # a kernel file, read line by line
            return any(line.startswith("State:\tZ") for line in status)
    except OSError:
        return True
