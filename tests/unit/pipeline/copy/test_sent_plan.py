"""Plans on their way to a Python worker: whole, or as the difference to the one before."""

from __future__ import annotations

import pickle
from unittest.mock import patch

import attrs
from hypothesis import given
from hypothesis import strategies as st

from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits, EpochPlan, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.copy import sent_plan
from mm2py.pipeline.copy.sent_plan import KEPT_TASKS, MANY, KeptPlan, KeptPlans, SentPlan, difference


A, B = ClusterEndpoint("A", ("a:1",)), ClusterEndpoint("B", ("b:1",))

#: Of each epoch, the positions of its partitions, and whether it runs in another worker than the one before.
epochs = st.lists(st.tuples(st.dictionaries(st.integers(0, 5), st.integers(0, 3)), st.booleans()), max_size=8)


def plan_of(positions: dict[int, int], *, task: int = 0, epoch: int = 0) -> EpochPlan:
    partitions = tuple(
        PartitionPlan(TopicPartition("orders", number), "A.orders", position, position - 1, is_unsure=False)
        for number, position in positions.items()
    )
    return EpochPlan(Flow("A", "B"), task, epoch, A, B, partitions, CopyLimits(), 1_000, 1_000)


def kept(plan: EpochPlan, number: int) -> KeptPlan:
    return KeptPlan(number, plan.by_source, plan.partitions)


def sent(what: SentPlan) -> SentPlan:
    """Return it as it arrives."""
    arrived: SentPlan = pickle.loads(pickle.dumps(what))
    return arrived


@given(epochs)
def test_a_worker_gets_the_plan_or_asks_for_it(epochs: list[tuple[dict[int, int], bool]]) -> None:
    """Whatever changes from epoch to epoch, and wherever one runs, a worker has the daemon's plan or says so."""
    workers, before = [KeptPlans(), KeptPlans()], None
    with patch.object(sent_plan, "MANY", 0):
        for number, (positions, is_elsewhere) in enumerate(epochs):
            plan = plan_of(positions, epoch=number)
            if is_elsewhere:
                workers.reverse()
            got = workers[0].whole(sent(difference(plan, number, before)))
            if got is None:
                assert is_elsewhere
                got = workers[0].whole(sent(SentPlan(plan, number)))

            assert got is not None
            assert {it.source: it for it in got.partitions} == {it.source: it for it in plan.partitions}
            assert attrs.evolve(got, partitions=()) == attrs.evolve(plan, partitions=())
            before = kept(plan, number)


def test_of_many_partitions_only_what_is_different_is_sent() -> None:
    """One partition that advanced, one that is new and one that is gone are all that travels; others stay the same."""
    first = plan_of(dict.fromkeys(range(MANY + 2), 5))
    worker = KeptPlans()
    arrived = worker.whole(sent(SentPlan(first, 0)))
    second = plan_of({number: 5 + (number == 3) for number in range(1, MANY + 3)}, epoch=1)
    travels = difference(second, 1, kept(first, 0))
    got = worker.whole(sent(travels))

    assert [it.source.partition for it in travels.plan.partitions] == [3, MANY + 2]
    assert travels.dropped == (TopicPartition("orders", 0),)
    assert arrived is not None
    assert got is not None
    assert got.partitions[0] is arrived.partitions[1]


def test_of_many_partitions_none_of_which_has_changed_nothing_is_made_again() -> None:
    """The daemon plans the same tuple then, and so does the worker have the one of the last epoch."""
    plan = plan_of(dict.fromkeys(range(MANY + 1), 5))
    worker = KeptPlans()
    first = worker.whole(sent(SentPlan(plan, 0)))
    second = worker.whole(sent(difference(attrs.evolve(plan, epoch=1), 1, kept(plan, 0))))

    assert first is not None
    assert second is not None
    assert second.epoch == 1
    assert second.partitions is first.partitions


def test_few_partitions_are_sent_whole() -> None:
    """Where there is nothing to save, no worker has to ask."""
    plan = plan_of(dict.fromkeys(range(MANY), 5))

    assert difference(plan, 1, kept(plan, 0)).is_whole


def test_a_worker_keeps_plans_of_few_copy_tasks() -> None:
    """A worker that met other copy tasks since needs the whole plan: it does not keep more and more."""
    worker, plan = KeptPlans(), plan_of(dict.fromkeys(range(MANY + 1), 5))
    for task in range(KEPT_TASKS + 1):
        worker.whole(SentPlan(attrs.evolve(plan, task=task), task))

    assert worker.whole(difference(plan, 9, kept(plan, 0))) is None
    assert worker.whole(difference(attrs.evolve(plan, task=1), 9, kept(plan, 1))) is not None
