"""
A flow's transactions: whether it has any, what their ids are, and how what a killed daemon left open is ended.

The id of a record task follows from its flow and from what the settings call its transform. So it is the same on every
node and after every restart, and opening it fences the previous owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from mm2py.config.connector import MirrorSourceConfig
from mm2py.connectors.plugins import transforms_of
from mm2py.errors import Mm2Error
from mm2py.model.epoch import Transactions
from mm2py.model.transform import Transform
from mm2py.wire.cluster import Cluster
from mm2py.wire.transactions import TransactionalProducer


def transactions_of(config: MirrorSourceConfig, transform: Transform | None) -> Transactions | None:
    """Return how the records of *transform* are written; None where not in transactions."""
    if transform is None or not config.copying.is_exactly_once:
        return None
    transactional_id = f"mm2py-{config.flow}-{transform.name}"
    timeout_ms = config.copying.transaction_timeout_ms
    return Transactions(transactional_id, config.offset_storage.topic, timeout_ms, config.name)


async def end_open_transactions(config: MirrorSourceConfig, target: Cluster, tasks: Collection[int]) -> None:
    """Abort the open transactions of a flow's *tasks*, and fence their producers. Records after an open transaction in
    the positions topic cannot be read.
    """
    transforms = [transform for task, transform in enumerate(transforms_of(config).tasks) if task in tasks]
    open_ones = [terms for it in transforms if (terms := transactions_of(config, it)) is not None]
    failed: list[Mm2Error] = []

    async def end(terms: Transactions) -> None:
        try:
            await TransactionalProducer(target, terms.transactional_id, terms.timeout_ms).open()
        except Mm2Error as error:
            failed.append(error)

    async with asyncio.TaskGroup() as group:
        for terms in open_ones:
            group.create_task(end(terms), name=f"{config.flow}/source/end {terms.transactional_id}")
    if failed:
        raise failed[0]
