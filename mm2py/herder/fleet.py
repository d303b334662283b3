"""
The flows that a node runs, and how they change while it runs.

Before a flow starts, its overrides are read. A flow whose settings changed is drained, which writes its positions, and
restarts with the new ones; all others continue undisturbed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from mm2py.config.settings import FlowSettings
from mm2py.connectors.pair import PairedSource, Pairs
from mm2py.core.herder.reload import FlowChanges
from mm2py.herder.runner import FlowRunner
from mm2py.herder.sharing import FlowSharing
from mm2py.model.flow import Flow


#: Time limit for other nodes to notice that this one ends, and to take over: a heartbeat, and the end of an epoch.
_PART_S = 4.0


class Fleet:
    """The running flows of one node, by name. *make* creates a runner, *prepare* learns before it runs what operators
    set, and *desired* returns the settings that a flow is to run with. *drain_s* returns how long the epochs of a flow
    may take to end, *slack_s* is what its drain may take beyond that. By *pairs* the flows know of each other.
    """

    def __init__(
        self,
        make: Callable[[FlowSettings], FlowRunner],
        drain_s: Callable[[FlowSettings], float],
        *,
        slack_s: float,
        prepare: Callable[[FlowRunner], Coroutine[Any, Any, None]],
        desired: Callable[[Flow], FlowSettings],
        pairs: Pairs,
    ) -> None:
        self._make = make
        self._prepare = prepare
        self._desired = desired
        self._pairs = pairs
        self._drain_s = drain_s
        self._slack_s = slack_s
        self._runners: dict[Flow, FlowRunner] = {}
        self._elsewhere: dict[Flow, FlowSettings] = {}
        self._running: dict[Flow, asyncio.Task[None]] = {}
        self._is_changing = False
        #: Whether an operator drained the node: it takes no tasks of any flow.
        self.is_drained = False
        self._news = asyncio.Event()

    @property
    def runners(self) -> tuple[FlowRunner, ...]:
        """Return all flows by name, so that a re-created one keeps its place."""
        return tuple(self._runners[flow] for flow in sorted(self._runners, key=str))

    @property
    def is_running(self) -> bool:
        """Whether any flow is still running."""
        return any(not task.done() and not self._runners[flow].is_at_rest for flow, task in self._running.items())

    def runner(self, flow: Flow) -> FlowRunner | None:
        """Return the runner of *flow*, None if this node does not run it."""
        return self._runners.get(flow)

    def add(self, flows: Iterable[FlowSettings]) -> None:
        """Create runners for *flows*, to be run by `start`."""
        for settings in flows:
            runner = self._runners[settings.flow] = self._make(settings)
            if runner.sharing is not None:
                runner.sharing.set_drained(is_drained=self.is_drained)
        self._introduce()

    def set_drained(self, *, is_drained: bool) -> None:
        """Give up the tasks of all flows, or take them again."""
        self.is_drained = is_drained
        for sharing in self._shared():
            sharing.set_drained(is_drained=is_drained)

    def _shared(self) -> list[FlowSharing]:
        """Return the sharing of each flow that does more than to emit heartbeats."""
        return [runner.sharing for runner in self._runners.values() if runner.sharing is not None]

    def know(self, elsewhere: Iterable[FlowSettings]) -> None:
        """Record the flows of other nodes, as in this node's file."""
        self._elsewhere = {settings.flow: settings for settings in elsewhere}
        self._introduce()

    def _introduce(self) -> None:
        """Have flows know which source connectors there are: what this node runs it knows best."""
        here = [
            PairedSource(runner.settings.source_connector, runner.live_translations)
            for runner in self._runners.values()
        ]
        elsewhere = [
            PairedSource(settings.source_connector)
            for flow, settings in self._elsewhere.items()
            if flow not in self._runners
        ]
        changed = self._pairs.know((*here, *elsewhere))
        for flow, runner in self._runners.items():
            if flow.pair in changed and self._pairs.beside(flow):
                runner.look_for_topics()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start flows that are not running yet."""
        for flow, runner in self._runners.items():
            if flow not in self._running:
                self._running[flow] = tasks.create_task(self._run(runner), name=str(flow))

    async def _run(self, runner: FlowRunner) -> None:
        # What was changed while it was prepared, the runner may have already.
        if await self._is_prepared(runner) and (settings := self._desired(runner.flow)) != runner.settings:
            self.add([settings])
            self._succeed(runner)
            runner = self._runners[settings.flow]
        await runner.run(self._news.set)
        self._news.set()

    async def _is_prepared(self, runner: FlowRunner) -> bool:
        """Prepare *runner*; return False if it is drained before that is done."""
        async with asyncio.TaskGroup() as tasks:
            preparing = tasks.create_task(self._prepare(runner), name=f"{runner.flow}/overrides")
            leaving = tasks.create_task(runner.draining.wait(), name=f"{runner.flow}/leaving")
            await asyncio.wait({preparing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            preparing.cancel()
            leaving.cancel()
        return not runner.draining.is_set()

    async def change(self, changes: FlowChanges, tasks: asyncio.TaskGroup) -> bool:
        """Drain changed and removed flows and start new ones; return what `drain` does. A flow of which single
        connectors can restart alone is not drained.
        """
        self._is_changing = True
        try:
            changed = [one for one in changes.changed if one.flow in changes.whole or not self._adopt(one)]
            before = [self._runners[settings.flow] for settings in changed]
            leaving = [*changes.removed, *(runner.flow for runner in before)]
            for settings in changed:
                if (sharing := self._runners[settings.flow].sharing) is not None:
                    sharing.hand_over(settings)
            is_drained = await self.drain(leaving)
            for flow in leaving:
                del self._runners[flow], self._running[flow]
            self.add((*changed, *changes.added))
            for runner in before:
                self._succeed(runner)
            self.start(tasks)
        finally:
            self._is_changing = False
            self._news.set()
        return is_drained

    def _adopt(self, settings: FlowSettings) -> bool:
        is_adopted = self._runners[settings.flow].adopt(settings)
        if is_adopted:
            self._introduce()
        return is_adopted

    def _succeed(self, before: FlowRunner) -> None:
        """Have a flow's new runner keep the place of the one *before* among the flow's nodes."""
        sharing = self._runners[before.flow].sharing
        if sharing is not None and before.sharing is not None:
            sharing.succeed(before.sharing)

    async def drain(self, flows: Iterable[Flow] | None = None) -> bool:
        """Drain *flows*, or all because the node ends; one that does not end in time is cancelled. Return whether all
        ended in time, and all their epochs.
        """
        if flows is None:
            async with asyncio.TaskGroup() as parting:
                for sharing in self._shared():
                    parting.create_task(sharing.part(within_s=_PART_S), name=f"{sharing.flow}/part")
        # A change that is under way removes those that have ended.
        leaving = [self._runners[flow] for flow in (self._runners if flows is None else flows)]
        if not leaving:
            return True
        longest = max(self._drain_s(runner.settings) for runner in leaving)
        for runner in leaving:
            runner.drain(within_s=self._drain_s(runner.settings))
        _, late = await asyncio.wait([self._running[it.flow] for it in leaving], timeout=longest + self._slack_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return not late and not any(runner.has_lost for runner in leaving)

    async def until_over(self) -> None:
        """Wait until all flows have ended that do more than to emit heartbeats, or without any, all flows."""
        while True:
            self._news.clear()
            mirroring = [runner for runner in self.runners if runner.settings.reads_source]
            purpose = mirroring or self.runners
            if not self._is_changing and all(runner.is_over for runner in purpose):
                return
            await self._news.wait()
