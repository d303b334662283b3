"""Ports that nobody listens on."""

from __future__ import annotations

import socket
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
