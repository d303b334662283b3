"""The broker that coordinates a group or a transactional id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError
from mm2py.wire.answers import by_asked
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of, needs_lookup
from mm2py.wire.groups.requests import TRANSACTION_KEY, FindCoordinatorsRequest


_NAMES: Final = {TRANSACTION_KEY: "FindTransactionCoordinator"}


class Coordinator:
    """The coordinator of one *key* of a cluster: looked up, cached, and looked up again when it has moved."""

    def __init__(self, cluster: Cluster, key: str, key_type: int, purpose: str) -> None:
        self._cluster = cluster
        self._key = key
        self._key_type = key_type
        self._purpose = purpose
        self._node: int | None = None

    async def ask(
        self,
        request: Any,
        name: str,
        judge: Callable[[Any], BrokerAnsweredError | None],
        *,
        within_s: float | None = None,
    ) -> Any:
        """
        Ask once; return the answer, or the error that it is: *judge* returns that of a response.

        A failed connection is an error too, NETWORK_EXCEPTION, and so is a coordinator that does not answer *within_s*.
        Raise where no broker of the cluster answers.
        """
        try:
            async with asyncio.timeout(within_s):
                if self._node is None:
                    self._node = await self._find()
                response = await self._cluster.send_to(self._node, request, self._purpose)
        except BrokerAnsweredError as error:
            return error
        except (BrokerConnectionError, ClusterUnreachableError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            if isinstance(error, TimeoutError) and self._node is not None:
                self._cluster.doubt(self._node)
            self._node = None
            await self._cluster.refresh_metadata(())  # raises if the cluster is unreachable
            return error_of(ErrorCode.NETWORK_EXCEPTION, self._cluster.alias, name, f"{self._key}: {why}")
        answered = judge(response)
        if answered is None:
            return response
        if needs_lookup(answered.code):
            self._node = None
        return answered

    async def _find(self) -> int:
        key = self._key
        response = await self._cluster.send_to_any(FindCoordinatorsRequest([key], self._key_type), self._purpose)
        if hasattr(response, "coordinators"):
            rows = ((found, (node, code, message)) for found, node, _, _, code, message, *_ in response.coordinators)
            silent = (-1, ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the answer")
            node, code, message = by_asked([key], rows, silent)[key]
        else:
            node, code, message = response.coordinator_id, response.error_code, response.error_message
        if code:
            detail = f"{key}: {message}" if message else key
            raise error_of(code, self._cluster.alias, _NAMES.get(self._key_type, "FindCoordinator"), detail)
        if node not in self._cluster.brokers:
            await self._cluster.refresh_metadata(())
        return int(node)
