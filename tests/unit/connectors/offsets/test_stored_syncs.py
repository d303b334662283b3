"""What a checkpoint connector knows by offset syncs alone, as a source connector elsewhere writes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import attrs
import pytest

from mm2py.connectors.offsets.offset_sync_store import OffsetSyncStore
from mm2py.connectors.offsets.stored_translations import StoredSyncs
from mm2py.core.offsets.translation import Precision, Translated, Untranslated
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import OffsetSync, encode_offset_sync, offset_sync_headers
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.checkpointing import store_of
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers, topics_with
from tests.support.flow_rig import SETTINGS, checkpoint_context


ORDERS, REMOTE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
_FIRST, _SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
#: The topic, by where it is: each is named after the other cluster.
TOPICS = {"source": "mm2-offset-syncs.B.internal", "target": "mm2-offset-syncs.A.internal"}


def _estimate(offset: int) -> Translated:
    return Translated(offset, Precision.OFFSET_SYNCS)


@attrs.define(eq=False)
class SyncsRig:
    """The cluster with the offset syncs, the target, and who reads them."""

    brokers: FakeBrokers
    target: FakeBrokers
    cluster: Cluster
    topic: str
    events: EventLog
    known: OffsetSyncStore

    async def sync(self, *syncs: tuple[int, int], of: TopicPartition = ORDERS, remote_id: str | None = None) -> None:
        """Have a source connector write where records went, and another program something else."""
        made = [OffsetSync(of, *one, remote_id) for one in syncs]
        records = [LogRecord(*encode_offset_sync(it), offset_sync_headers(it), partition=0) for it in made]
        await TopicLog(self.cluster, self.topic).append([*records, LogRecord(b"rubbish", b"rubbish", partition=0)])

    def asked(self, *offsets: int) -> list[object]:
        return [self.known.downstream(ORDERS, offset) for offset in offsets]


@pytest.fixture(params=["source", "target"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[SyncsRig]:
    ends, clock, topic = {"source": FakeBrokers(), "target": FakeBrokers()}, LoopClock(), TOPICS[request.param]
    events, brokers = EventLog(clock), ends[request.param]
    brokers.topics = topics_with(topic, [0])
    checkpoint = attrs.evolve(SETTINGS.checkpoint_connector, syncs_location=request.param)
    context = checkpoint_context(clock, events, attrs.evolve(SETTINGS, checkpoint_connector=checkpoint))
    async with AsyncExitStack() as stack:
        clusters = [
            await stack.enter_async_context(Cluster(end.endpoint, clock, opener=end.open)) for end in ends.values()
        ]
        cluster = clusters[list(ends).index(request.param)]
        read = partial(StoredSyncs, context.config, *clusters, passed_over=context.passed_over, clock=clock)
        yield SyncsRig(brokers, ends["target"], cluster, topic, events, store_of(lambda: None, read))


async def test_it_translates_as_java_does(rig: SyncsRig) -> None:
    """By the last sync at or below an offset, and by one more past it; each refresh takes what was added."""
    await rig.sync((10, 5), (110, 105))
    await rig.known.refresh()
    early = rig.asked(9, 10, 50, 110, 200)
    await rig.sync((210, 205))
    await rig.known.refresh()

    assert early == [Untranslated.TOO_OLD, _estimate(5), _estimate(6), _estimate(105), _estimate(106)]
    assert rig.asked(200, 210, 9_000) == [_estimate(106), _estimate(205), _estimate(206)]
    assert rig.known.source_of(REMOTE) == ORDERS
    assert rig.known.upstream(REMOTE, 300) == _estimate(211)


async def test_without_a_sync_groups_learn_why(rig: SyncsRig) -> None:
    """Nothing is known before the first refresh; without a topic there is no sync, and that is no failure."""
    rig.brokers.topics = {}
    await rig.known.refresh()
    missing = rig.asked(50)
    rig.brokers.topics = topics_with(rig.topic, [0])
    await rig.sync((10, 5), of=TopicPartition("orders", 1))
    await rig.known.refresh()
    before = rig.asked(50)
    await rig.sync((10, 5))
    await rig.known.refresh()

    assert (missing, before) == ([Untranslated.NO_SYNC], [Untranslated.NO_SYNC])
    assert rig.asked(50) == [_estimate(6)]


async def test_what_may_not_be_read_is_raised_and_nothing_is_ready(
    rig: SyncsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint connector reports it, and says of its groups that translations are not read yet."""

    async def refused(*_: object) -> dict[TopicPartition, int]:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raise BrokerAnsweredError("A", "ListOffsets", int(code), code.name)

    monkeypatch.setattr(TopicLog, "_offsets", refused)
    with pytest.raises(BrokerAnsweredError, match="AUTHORIZATION"):
        await rig.known.refresh()

    assert rig.asked(50) == [Untranslated.NOT_READY]


async def test_a_topic_that_was_created_again_is_read_from_its_start(rig: SyncsRig) -> None:
    """What the old one told counts no more."""
    await rig.sync((10, 5), (500, 495))
    await rig.known.refresh()
    rig.brokers.topics = topics_with(rig.topic, [0])
    rig.brokers.topics[rig.topic].topic_id = _SECOND
    await rig.sync((20, 3))
    await rig.known.refresh()

    assert rig.asked(15, 20, 600) == [Untranslated.TOO_OLD, _estimate(3), _estimate(4)]


async def test_syncs_are_of_the_remote_topic_that_they_were_written_for(rig: SyncsRig) -> None:
    """
    The remote topic is created again, and copied from the source's offset 400 on: by what was written before, a group
    at 450 would be at 451 of it, past records that it has not read. Only a sync that begins again is of the new topic.
    """

    def remote(topic_id: str) -> None:
        rig.target.topics = {**rig.target.topics, **topics_with(REMOTE.topic, [0])}
        rig.target.topics[REMOTE.topic].topic_id = topic_id

    found = []
    for topic_id, syncs in (
        (_FIRST, [(10, 10), (450, 450)]),
        (_SECOND, [(460, 460)]),
        (_SECOND, [(400, 0), (440, 40)]),
    ):
        remote(topic_id)
        await rig.sync(*syncs)
        await rig.known.refresh()
        found.append((rig.known.topics_of(ORDERS).remote_id, *rig.asked(450)))

    assert found == [(_FIRST, _estimate(450)), (_FIRST, _estimate(450)), (_SECOND, _estimate(41))]


async def test_syncs_that_name_their_remote_topic_are_of_no_other(rig: SyncsRig) -> None:
    """
    A source connector of ours writes a sync; the remote topic is created again, and only then a worker starts that has
    a checkpoint connector alone. What it reads is of the topic before, until there is a sync of the new one.
    """
    await rig.sync((10, 10), (450, 450), remote_id=_FIRST)
    rig.target.topics = {**rig.target.topics, **topics_with(REMOTE.topic, [0])}
    rig.target.topics[REMOTE.topic].topic_id = _SECOND
    await rig.known.refresh()
    before = rig.known.topics_of(ORDERS).remote_id, *rig.asked(450)
    await rig.sync((460, 0), (470, 10), remote_id=_SECOND)
    await rig.known.refresh()

    assert before == (_FIRST, _estimate(450))
    assert (rig.known.topics_of(ORDERS).remote_id, *rig.asked(450, 465)) == (
        _SECOND, Untranslated.TOO_OLD, _estimate(1),
    )  # fmt: skip
