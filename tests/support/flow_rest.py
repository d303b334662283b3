"""REST of a running daemon, asked about one flow, or about a worker's connectors, as an operator asks."""

from __future__ import annotations

from typing import Any

import aiohttp
import attrs

from tests.support.daemon import Daemon
from tests.support.eventually import eventually


SOURCE = "/connectors/MirrorSourceConnector"


@attrs.frozen
class FlowRest:
    """One flow's address at a running daemon."""

    url: str

    async def ask(self, method: str, path: str, body: object = None, *, wanted: int | None = None) -> Any:
        """Send a request and return the answer's JSON; another status than *wanted*, or any refusal, fails."""
        async with aiohttp.ClientSession() as session, session.request(method, self.url + path, json=body) as answer:
            text = await answer.text()
            assert answer.ok if wanted is None else answer.status == wanted, f"{method} {path}: {answer.status}: {text}"
            return await answer.json() if text else None

    async def status(self, method: str, path: str, body: object = None) -> int:
        """Send a request and return the answer's status."""
        async with aiohttp.ClientSession() as session, session.request(method, self.url + path, json=body) as answer:
            return answer.status

    async def state(self, wanted: str) -> None:
        """Wait until the source connector is in a state of Connect's."""

        async def is_so() -> bool:
            status = await self.ask("GET", f"{SOURCE}/status")
            assert status["connector"]["state"] == wanted, status
            return True

        await eventually(is_so, within_s=60, what=f"the connector is {wanted}")


class WorkerRest(FlowRest):
    """The root of a Connect worker."""

    async def until(self, name: str, wanted: str, *, tasks: int) -> None:
        """Wait until a connector has this state, and so many tasks in the same state."""

        async def is_so() -> bool:
            found = await self.ask("GET", f"/connectors/{name}/status")
            assert found["connector"]["state"] == wanted, found
            assert [task["state"] for task in found["tasks"]] == [wanted] * tasks, found
            return True

        await eventually(is_so, within_s=60, what=f"{name} is {wanted} with {tasks} tasks")


async def worker_rest(running: Daemon) -> WorkerRest:
    """Return where a worker answers, once it knows its connectors."""
    listening = await running.wait_for_event("rest_listening")
    await running.wait_for_event("connectors_read")
    return WorkerRest(listening["url"].rstrip("/"))


async def flow_rest(running: Daemon, flow: str) -> FlowRest:
    """Return where the daemon answers about *flow*."""
    listening = await running.wait_for_event("rest_listening")
    source, _, target = flow.partition("->")
    return FlowRest(f"{listening['url'].rstrip('/')}/from:{source}/to:{target}")


def offset_body(alias: str, topic: str, offset: int) -> dict[str, Any]:
    """Return what sets the offset of the record that was copied last, of partition 0, as Connect has it (KIP-875)."""
    partition = {"cluster": alias, "partition": 0, "topic": topic}
    return {"offsets": [{"partition": partition, "offset": {"offset": offset}}]}
