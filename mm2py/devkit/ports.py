"""
Free TCP ports on the loopback address.

They are taken below the range that the kernel hands out to outgoing connections: a broker that is killed and started
again must find its port still free, and no client may have got it as its own in the meantime.
"""

from __future__ import annotations

import contextlib
import random
import socket


HOST = "127.0.0.1"

_LOWEST = 15_000
_HIGHEST = 32_000


def free_ports(count: int) -> tuple[int, ...]:
    """Give *count* different ports that nobody listens on."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311  # spreads parallel runs, hides nothing
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                found.append(port)
    return tuple(found)
