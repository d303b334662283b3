"""Free ports: no process listens on them."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mm2py.devkit import ports
from mm2py.devkit.ports import HOST, free_ports


def take_from(block: int) -> subprocess.CompletedProcess[str]:
    """Have another process ask for a port of this block."""
    ask = f"from mm2py.devkit import ports; ports._unasked[:] = [{block}]; ports.free_ports(1)"
    return subprocess.run([sys.executable, "-c", ask], check=False, capture_output=True, text=True)


def test_ports_differ_and_can_be_bound() -> None:
    """Many ports at once are all different and free."""
    found = free_ports(50)

    assert len(set(found)) == 50
    for port in found:
        with socket.socket() as probe:
            probe.bind((HOST, port))


def test_ports_are_not_those_of_outgoing_connections() -> None:
    """The kernel gives none of them to a client, so a killed broker finds its port free again."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    assert all(port < lowest for port in free_ports(50))


def test_no_port_is_given_twice() -> None:
    """Clusters that are set up side by side, before any of their brokers listens, share no port."""
    with ThreadPoolExecutor(8) as threads:
        found = [port for given in threads.map(free_ports, [100] * 20) for port in given]

    assert len(set(found)) == len(found) == 2000


def test_processes_side_by_side_share_no_port() -> None:
    """A block of ports is one process's until that ends: no other gets a port of it that is not in use yet."""
    (port,) = free_ports(1)

    assert "all ports from" in take_from(port - port % ports._BLOCK).stderr


def test_ports_of_a_process_that_ended_are_given_again() -> None:
    """What a process had taken, however it ended, is free for the next one."""
    ask = "import os, signal; from mm2py.devkit import ports; print(ports.free_ports(1)[0], flush=True); "

    def is_given_again() -> bool:
        killed = subprocess.run(
            [sys.executable, "-c", f"{ask} os.kill(os.getpid(), signal.SIGKILL)"], check=False, capture_output=True
        )
        assert killed.returncode == -9
        return take_from(int(killed.stdout) // ports._BLOCK * ports._BLOCK).returncode == 0

    # Another run beside this one may have taken the block meanwhile.
    assert any(is_given_again() for _ in range(3))
