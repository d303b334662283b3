"""This process, and whether another one of this machine still runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import attrs

from mm2py.herder.this_node import is_alive, this_node


def test_a_process_is_alive_until_it_has_ended_and_its_number_is_not_enough() -> None:
    """An earlier process with this one's number is not this one; a zombie has ended."""
    us = this_node()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        child.kill()
        # It stays a zombie until its parent waits for it.
        while is_alive(attrs.evolve(us, pid=child.pid, begun=_begun(child.pid))):
            pass
        zombie = attrs.evolve(us, pid=child.pid, begun=_begun(child.pid))
        is_zombie_alive = is_alive(zombie)

    assert is_alive(us)
    assert not is_zombie_alive
    assert not is_alive(zombie)
    assert not is_alive(attrs.evolve(us, begun="1"))


def test_a_process_is_known_by_its_machine() -> None:
    """The kernel's boot and the namespace of process numbers say which machine it is."""
    us, again = this_node(rest="here:8083"), this_node()

    assert us.machine
    assert us.shares_processes_with(again)


def _begun(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
