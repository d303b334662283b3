"""Does a port speak TLS? Asked once a broker has hung up on a client that does not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final


_LIMIT_S: Final = 2.0
#: What a TLS record begins with that answers a client's first one: a hand-shake, or an alert.
_RECORDS: Final = (0x16, 0x15)


async def speaks_tls(host: str, port: int) -> bool:
    """Say hello as a TLS client does and look at the first byte that comes back; False where nothing does."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    hello = context.wrap_bio(incoming, outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    try:
        async with asyncio.timeout(_LIMIT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(outgoing.read())
                first = await reader.read(1)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return bool(first) and first[0] in _RECORDS
