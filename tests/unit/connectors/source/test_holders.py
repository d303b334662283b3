"""Partitions change hands only between two epochs."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from mm2py.clock import SystemClock
from mm2py.connectors.plugins import transforms_of
from mm2py.connectors.source.holders import Holders
from mm2py.model.flow import TopicPartition
from mm2py.telemetry.journal import EventLog
from tests.support.flow_rig import SETTINGS


_TASKS = 3
_PARTITIONS = [TopicPartition("t", number) for number in range(6)]

#: Which partitions there are, and how busy each is; or a copy task that begins an epoch, or ends it.
_steps = st.lists(
    st.dictionaries(st.sampled_from(_PARTITIONS), st.sampled_from([1.0, 1e6])) | st.integers(0, _TASKS - 1),
    max_size=40,
)


@given(_steps)
def test_a_partition_has_one_holder_and_goes_to_its_owner(steps: list[dict[TopicPartition, float] | int]) -> None:
    """A copy task may copy what it is assigned unless another one still does; that one's return wakes it."""
    copying = attrs.evolve(SETTINGS.source_connector.copying, tasks_max=_TASKS)
    config = attrs.evolve(SETTINGS.source_connector, copying=copying)
    holders = Holders(config, transforms_of(config), EventLog(SystemClock()))
    held: dict[TopicPartition, int] = {}
    for step in steps:
        if isinstance(step, dict):
            holders.assign(step)
        elif step in held.values():
            returned = {it for it, task in held.items() if task == step}
            held = {it: task for it, task in held.items() if task != step}
            owners = {holders.owners[it] for it in returned if it in holders.owners}
            assert holders.put_back(step) == owners - {step}
        elif own := holders.of_task(step):
            held |= dict.fromkeys(own, step)
            holders.hold(step, set(own))

        assert {it: holders.holder_of(it) for it in _PARTITIONS} == {it: held.get(it) for it in _PARTITIONS}
        for task in range(_TASKS):
            mine = [it for it, owner in sorted(holders.owners.items()) if owner == task]
            assert list(holders.of_task(task)) == [it for it in mine if held.get(it, task) == task]
