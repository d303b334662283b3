"""Which broker coordinates a group or a transactional id."""

from __future__ import annotations

from typing import Final

from mm2py.wire.answers import told_of
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.requests import TRANSACTION_KEY, FindCoordinatorsRequest


_NAMES: Final = {TRANSACTION_KEY: "FindTransactionCoordinator"}


async def find_coordinator(cluster: Cluster, key: str, key_type: int, purpose: str) -> int:
    """Look up the broker that coordinates *key*. Raise why there is none now."""
    response = await cluster.send_to_any(FindCoordinatorsRequest([key], key_type), purpose)
    if hasattr(response, "coordinators"):
        rows = ((found, (node, code, message)) for found, node, _, _, code, message, *_ in response.coordinators)
        silent = (-1, ErrorCode.UNKNOWN_SERVER_ERROR, "left out of the answer")
        node, code, message = told_of([key], rows, silent)[key]
    else:
        node, code, message = response.coordinator_id, response.error_code, response.error_message
    if code:
        detail = f"{key}: {message}" if message else key
        raise error_of(code, cluster.alias, _NAMES.get(key_type, "FindCoordinator"), detail)
    if node not in cluster.brokers:
        await cluster.refresh_metadata(())
    return int(node)
