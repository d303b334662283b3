"""
Connecting to a host by whichever of its addresses answers: a name may still have those of machines that are gone.

asyncio can do so itself (`happy_eyeballs_delay`), but loses the socket if it is cancelled right after that connected.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from functools import partial
from typing import Any


#: The next address is tried if the last one has been silent for so long.
_NEXT_AFTER_S = 1.0
_MOST_PORT = 0xFFFF


async def connected(host: str, port: int) -> socket.socket:
    """Return a socket that is connected to one of a host's addresses. Raise `OSError` if none of them answers, and
    `ValueError` for a port that there cannot be.
    """
    loop = asyncio.get_running_loop()
    left, under_way = await _addresses(host, port), dict[asyncio.Task[None], socket.socket]()
    refusal = OSError("the host's name has no address")
    try:
        while left or under_way:
            if left:
                family, kind, protocol, _, address = left.pop(0)
                try:
                    line = socket.socket(family, kind, protocol)
                except OSError as error:  # a machine without IPv6
                    refusal = error
                    continue
                line.settimeout(0)
                under_way[loop.create_task(loop.sock_connect(line, address))] = line
            wait_s = _NEXT_AFTER_S if left else None
            done, _ = await asyncio.wait(under_way, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                try:
                    attempt.result()
                except OSError as error:
                    refusal = error
                    under_way.pop(attempt).close()
                else:
                    return under_way.pop(attempt)
        raise refusal
    finally:
        # Not awaited: to be cancelled here would be to lose the socket that was found.
        for attempt, line in under_way.items():
            attempt.add_done_callback(partial(_close, line))
            attempt.cancel()


def host_and_port(host: str, port: int) -> str:
    """Return how an address is written: that of IPv6 in brackets, or its port would look like the end of it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _close(line: socket.socket, attempt: asyncio.Task[None]) -> None:
    if not attempt.cancelled():
        attempt.exception()
    line.close()


async def _addresses(host: str, port: int) -> list[Any]:
    if not 0 < port <= _MOST_PORT:
        raise ValueError(f"there is no port {port}")
    # Of an address, nobody needs to be asked; a name may take its time, in a thread.
    if _is_address(host):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
