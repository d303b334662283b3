"""
Free TCP ports on the loopback address.

They are taken below the range that the kernel hands out to outgoing connections: a broker that is killed and started
again must find its port still free, and no client may have got it as its own in the meantime. For the same reason a
process gets each port only once: between the question and the program that listens there lie seconds, and two clusters
started side by side would otherwise now and then be given the same.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading


HOST = "127.0.0.1"

_LOWEST = 15_000
_HIGHEST = 32_000

_given: set[int] = set()
_lock = threading.Lock()


def free_ports(count: int) -> tuple[int, ...]:
    """Give *count* ports that nobody listens on and that this process was not given before."""
    found: list[int] = []
    with _lock, contextlib.ExitStack() as held:
        while len(found) < count:
            port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311  # spreads parallel runs, hides nothing
            if port in _given:
                continue
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                found.append(port)
                _given.add(port)
    return tuple(found)
