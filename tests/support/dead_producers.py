"""Producers that die in the midst of a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer


async def leave_open(
    bootstrap: str, topic: str, partitions: Iterable[int], *, transactional_id: str, timeout_ms: int = 600_000
) -> None:
    """Write a record to each of *partitions* in a transaction, and vanish without a word."""
    doomed = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    await doomed.start()
    await doomed.begin_transaction()
    await asyncio.gather(*[await doomed.send(topic, b"never to be seen", partition=number) for number in partitions])
    # Its own `stop` would abort the transaction.
    doomed._sender._sender_task.cancel()
    await doomed.client.close()
    doomed._closed = True


async def end_open(bootstrap: str, transactional_id: str) -> None:
    """Abort what a producer of that id left open, by taking the id over."""
    heir = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await heir.start()
    await heir.stop()
