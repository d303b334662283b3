"""Ports that nobody listens on."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mm2py.devkit.ports import HOST, free_ports


def test_ports_differ_and_can_be_bound() -> None:
    """Many ports at once are all different and free."""
    ports = free_ports(50)

    assert len(set(ports)) == 50
    for port in ports:
        with socket.socket() as probe:
            probe.bind((HOST, port))


def test_ports_are_not_those_of_outgoing_connections() -> None:
    """The kernel gives none of them to a client, so a killed broker finds its port free again."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    assert all(port < lowest for port in free_ports(50))


def test_no_port_is_given_twice() -> None:
    """Clusters that are set up side by side, before any of their brokers listens, share no port."""
    with ThreadPoolExecutor(8) as threads:
        ports = [port for given in threads.map(free_ports, [100] * 20) for port in given]

    assert len(set(ports)) == len(ports) == 2000
