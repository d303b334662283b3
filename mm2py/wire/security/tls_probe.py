"""Whether a port speaks TLS: checked once a broker has closed a connection, to distinguish a wrong port from a broker
that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final


_LIMIT_S: Final = 2.0
#: What a TLS record begins with that answers a client's first one: a hand-shake, or an alert.
_RECORDS: Final = (0x16, 0x15)


async def speaks_tls(host: str, port: int) -> bool | None:
    """Send a TLS client hello; return whether the answer looks like TLS, None without a listener."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    hello = context.wrap_bio(incoming, outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    try:
        async with asyncio.timeout(_LIMIT_S):
            reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return None
    try:
        async with asyncio.timeout(_LIMIT_S):
            writer.write(outgoing.read())
            first = await reader.read(1)
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
    return bool(first) and first[0] in _RECORDS
