"""
Free TCP ports on the loopback address.

They are taken below the range that the kernel hands out to outgoing connections: a broker that is killed and started
again must find its port still free, and no client may have got it as its own in the meantime. For the same reason each
port is given only once: between the question and the program that listens there lie seconds, and two clusters started
side by side would otherwise now and then be given the same. So that this holds among processes too, each takes whole
blocks of ports for itself. The name that marks a block is a socket's, which the kernel frees when the process ends.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading


HOST = "127.0.0.1"

_LOWEST = 15_000
_HIGHEST = 32_000
_BLOCK = 50

#: Where the blocks begin that this process has not asked for yet, in no order: that spreads parallel runs.
_unasked = random.sample(range(_LOWEST, _HIGHEST, _BLOCK), (_HIGHEST - _LOWEST) // _BLOCK)
_ports: list[int] = []
_lock = threading.Lock()


def free_ports(count: int) -> tuple[int, ...]:
    """Return *count* ports without a listener, and that neither this process nor one beside it was given."""
    found: list[int] = []
    with _lock, contextlib.ExitStack() as held:
        while len(found) < count:
            port = _next_port()
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                found.append(port)
    return tuple(found)


def _next_port() -> int:
    while not _ports:
        if not _unasked:
            raise RuntimeError(f"this process and those beside it have all ports from {_LOWEST} to {_HIGHEST}")
        first = _unasked.pop()
        if _is_ours_now(first):
            _ports.extend(range(first, first + _BLOCK))
    return _ports.pop()


def _is_ours_now(first: int) -> bool:
    """Whether the block that begins there could be taken; it stays taken until this process ends."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0mm2py-ports-{first}")
    except OSError:
        mark.close()
        return False
    mark.detach()
    return True
