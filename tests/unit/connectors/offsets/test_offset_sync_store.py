"""What is known of where a flow's records went: in memory, or read on, round by round, as another node stores it."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

import attrs
import pytest

from mm2py.connectors.offsets.offset_sync_store import OfConnector, OffsetSyncStore
from mm2py.connectors.offsets.stored_translations import StoredRuns
from mm2py.connectors.offsets.translations import Translations
from mm2py.core.offsets.translation import Precision, Translated, Untranslated
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError
from mm2py.model.connector_offset import SOURCE
from mm2py.model.epoch import PartitionOutcome, Run, Runs
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position, encode_position
from mm2py.model.run_chunk import RunChunk, chunk_key, encode_chunk
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.checkpointing import store_of
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import METADATA, FakeBrokers, topics_with


BACK = Flow("B", "A")
TOPIC = "mm2-offsets.B.internal"
ORDERS, REMOTE = TopicPartition("orders", 0), TopicPartition("B.orders", 0)


def _lent(known: Translations) -> OfConnector:
    """Return a connector that this node runs, of which nothing is read."""
    return OfConnector(lambda: known, lambda: pytest.fail("it is in memory"))


@attrs.define(eq=False)
class OtherNodeRig:
    """What another node keeps on cluster A, and who reads it."""

    brokers: FakeBrokers
    cluster: Cluster
    clock: LoopClock
    kept: OffsetSyncStore
    #: What this node has in memory, if it follows the flow.
    live: Translations | None = None
    #: What the other node's routers put before a topic's name.
    prefix: str = ""

    async def keep(self, *, upstream: int, downstream: int, length: int) -> None:
        """Have the other node copy a run and write down what it knows."""
        end = downstream + length
        chunk = RunChunk(
            covered_from=upstream,
            covered_to=upstream + length,
            end_from=downstream,
            end=end,
            is_origin=False,
            starts=array("q", [upstream]),
            downs=array("q", [downstream]),
            spans=array("q", [length]),
            counts=array("q", [length]),
        )
        key, value, headers = encode_position("B", Position(ORDERS, upstream + length, end - 1))
        records = [
            LogRecord(chunk_key("B", ORDERS, 0), encode_chunk(chunk, None)),
            LogRecord(key, value, tuple(headers)),
            LogRecord(b"rubbish", b"rubbish"),
        ]
        await TopicLog(self.cluster, TOPIC).append(records)


@pytest.fixture
async def rig() -> AsyncIterator[OtherNodeRig]:
    brokers, clock = FakeBrokers(), LoopClock()
    brokers.topics = topics_with(TOPIC, [0, 1, 2])
    async with Cluster(brokers.endpoint, clock, opener=brokers.open) as cluster:

        def names() -> Callable[[str], str]:
            return partial(f"B.{made.prefix}{{}}".format)

        read = partial(StoredRuns, BACK, cluster, names, topic=TOPIC, connector=SOURCE, clock=clock)
        made = OtherNodeRig(brokers, cluster, clock, store_of(lambda: made.live, read))
        yield made


async def test_what_another_node_keeps_is_read_on(rig: OtherNodeRig) -> None:
    """Each refresh takes what was added; an offset past what was kept so far counts as not copied yet."""
    await rig.keep(upstream=100, downstream=10, length=20)
    await rig.kept.refresh()
    early = [rig.kept.upstream(REMOTE, offset) for offset in (15, 40)]
    await rig.keep(upstream=100, downstream=10, length=50)
    await rig.kept.refresh()

    assert early == [Translated(105), Translated(120, Precision.END)]
    assert rig.kept.upstream(REMOTE, 40) == Translated(130)
    assert rig.kept.upstream(TopicPartition("B.other", 0), 1) is Untranslated.NOT_MIRRORED


async def test_a_pair_with_two_source_connectors_is_known_by_both(rig: OtherNodeRig) -> None:
    """Of a partition that one has left to the other, the one that went further knows more."""
    bills, remote = TopicPartition("bills", 0), TopicPartition("B.bills", 0)
    first, second = Translations(), Translations()
    for known, source, end in ((first, ORDERS, 20), (second, ORDERS, 50), (second, bills, 8)):
        known.adopt({source: Position(source, end, end - 1)}, {source: f"B.{source.topic}"})
        known.account(PartitionOutcome(source, end, end - 1, is_unsure=False, runs=Runs([Run(0, 0, end)])), 0)
    pair = {name: _lent(known) for name, known in (("a", first), ("b", second))}
    store = OffsetSyncStore(lambda: pair)
    await store.refresh()
    both = [store.downstream(ORDERS, 30), store.downstream(bills, 3), store.upstream(remote, 3)]
    del pair["b"]
    await store.refresh()

    assert both == [Translated(30), Translated(3), Translated(3)]
    assert store.downstream(ORDERS, 30) == Translated(20, Precision.END)
    assert store.downstream(bills, 3) is Untranslated.NOT_MIRRORED


async def test_a_topic_that_was_created_again_is_read_from_its_start(rig: OtherNodeRig) -> None:
    """The other node writes all that it knows into it; what the old topic held beyond that counts no more."""
    await rig.keep(upstream=100, downstream=10, length=20)
    await rig.keep(upstream=100, downstream=10, length=50)
    await rig.kept.refresh()
    rig.brokers.topics = topics_with(TOPIC, [0, 1, 2])
    rig.brokers.topics[TOPIC].topic_id = "AAAAAAAAAAAAAAAAAAAAAg"
    await rig.keep(upstream=200, downstream=10, length=60)
    await rig.kept.refresh()

    assert rig.kept.upstream(REMOTE, 15) == Translated(205)


async def test_a_topic_that_is_not_there_is_not_asked_for_at_each_round(rig: OtherNodeRig) -> None:
    """It is refused once, and asked for again a minute later; until then nothing is known."""
    rig.brokers.topics = {}
    with pytest.raises(BrokerAnsweredError, match="UNKNOWN_TOPIC"):
        await rig.kept.refresh()
    asked = len(rig.brokers.requests_of(METADATA))
    await rig.kept.refresh()
    not_asked = len(rig.brokers.requests_of(METADATA)) - asked
    rig.brokers.topics = topics_with(TOPIC, [0, 1, 2])
    await rig.clock.sleep(60)
    await rig.keep(upstream=100, downstream=10, length=20)
    await rig.kept.refresh()

    assert not_asked == 0
    assert rig.kept.upstream(REMOTE, 15) == Translated(105)


async def test_what_another_node_routes_is_known_by_the_name_it_has_there(rig: OtherNodeRig) -> None:
    """Routers name remote topics before the policy does; a reload may change them while the way back is read on."""
    routed = TopicPartition("B.new-orders", 0)
    await rig.keep(upstream=100, downstream=10, length=20)
    await rig.kept.refresh()
    before = [rig.kept.source_of(REMOTE), rig.kept.source_of(routed)]
    rig.prefix = "new-"
    await rig.keep(upstream=100, downstream=10, length=50)
    await rig.kept.refresh()

    assert before == [ORDERS, None]
    assert [rig.kept.source_of(REMOTE), rig.kept.source_of(routed)] == [None, ORDERS]
    assert rig.kept.upstream(routed, 15) == Translated(105)


async def test_what_was_read_before_a_failure_counts(rig: OtherNodeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker goes away while the topic is read; the next round reads on, and finds nothing more."""
    read_from = TopicLog.read_from

    async def read_a_part(log: TopicLog, positions: Mapping[int, int]) -> AsyncIterator[list[LogRecord]]:
        async for records in read_from(log, positions):
            yield records
        raise ClusterUnreachableError("A", "a:1", "gone")

    await rig.keep(upstream=100, downstream=10, length=20)
    with monkeypatch.context() as patched:
        patched.setattr(TopicLog, "read_from", read_a_part)
        with pytest.raises(ClusterUnreachableError):
            await rig.kept.refresh()
    await rig.kept.refresh()

    assert rig.kept.upstream(REMOTE, 15) == Translated(105)


async def test_what_is_in_memory_counts_from_round_to_round(rig: OtherNodeRig) -> None:
    """
    A flow's share moves between two rounds, or a reload gives the flow another life.

    What is stored is read when no life here follows the flow, and again when that comes back.
    """
    await rig.keep(upstream=100, downstream=10, length=20)
    lives: list[Translations | None] = [None]
    for downstream in (9, 19):
        life = Translations(flow_runs=10, partition_runs=10)
        life.adopt({ORDERS: Position(ORDERS, 700, downstream)}, {ORDERS: REMOTE.topic})
        lives += [life, None]
    found = []
    for rig.live in lives:
        await rig.kept.refresh()
        found.append((rig.kept.upstream(REMOTE, 20), rig.kept.downstream(ORDERS, 110), rig.kept.source_of(REMOTE)))

    stored = (Translated(110), Translated(20), ORDERS)
    assert found[::2] == [stored] * 3
    assert [it[0] for it in found[1::2]] == [Translated(700, Precision.END), Translated(700)]


async def test_nothing_is_known_before_the_first_round(rig: OtherNodeRig) -> None:
    """Neither way, nor of a partition's origin."""
    known = rig.kept

    assert known.source_of(REMOTE) is None
    assert known.upstream(REMOTE, 10) is Untranslated.NOT_MIRRORED
    assert known.downstream(ORDERS, 100) is Untranslated.NOT_MIRRORED
