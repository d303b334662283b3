"""Whatever a broker answers, asking it gives a value or an error of ours, and no line that went wrong is used on."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.errors import BrokerConnectionError, Mm2Error
from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.topic import NewTopic
from mm2py.wire import frames
from mm2py.wire.answers import MalformedAnswerError
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.groups.consumer_groups import Groups
from mm2py.wire.groups.membership import Membership
from mm2py.wire.log_end import epoch_ends, log_ends
from mm2py.wire.produce import BY_ID_API_VERSION, PartitionAck, init_producer_id, read_answer
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.security.access import LoginRefusedError
from mm2py.wire.security.sasl import log_in
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.topics.acls import create_topic_acls, delete_topic_acls, describe_topic_acls
from mm2py.wire.topics.admin import Admin
from mm2py.wire.transactions import TransactionalProducer
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakePartition, FakeTopic
from tests.support.garbled import GarbledBrokers, answer_to, damaged, structs
from tests.support.line import ENDPOINT, Frames, Line, frame
from tests.support.produce_v13 import told_by_id
from tests.support.secure_clusters import plain_line


RANDOMS = st.randoms(use_true_random=True)
STRUCTS = sorted(structs().values(), key=lambda it: (it.API_KEY, it.API_VERSION))
PLACES = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("h", 0)]
ACLS = [TopicAcl(name, PatternType.LITERAL, "User:x", "*", Operation.READ, Permission.ALLOW) for name in "th"]
MIB = 1024 * 1024


class _Asked:
    """A request whose answer is all that counts."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def prepare(self, _versions: object) -> Any:
        prepared = self._kind()
        prepared.encode = lambda: b""
        return prepared


@settings(max_examples=300)
@given(kind=st.sampled_from(STRUCTS), random=RANDOMS, times=st.integers(0, 3))
async def test_an_answer_is_read_or_ends_the_line(kind: Any, random: Random, times: int) -> None:
    """What cannot be read is one error that names broker and request, and the connection takes nothing any more."""
    line = Line()
    asked = asyncio.ensure_future(line.connection.send(_Asked(kind)))
    after = asyncio.ensure_future(line.connection.request_raw(1, 11, [b""]))
    await asyncio.sleep(0)
    answer = answer_to(kind, random)
    for _ in range(times):
        answer = damaged(answer, random)
    line.feed(frame(1, answer))
    (said,) = await asyncio.gather(asked, return_exceptions=True)
    is_open = not line.connection.is_closed
    line.connection.close()
    await asyncio.gather(after, return_exceptions=True)

    if is_open:
        assert isinstance(said, kind.RESPONSE_TYPE)
    else:
        name = kind.__name__.partition("Request")[0]
        assert isinstance(said, BrokerConnectionError)
        assert str(said).startswith(f"connection to broker b:9092 of cluster A: its answer to {name} v")
        assert isinstance(after.exception(), BrokerConnectionError)


@settings(max_examples=100)
@given(stream=st.binary(max_size=60), claims=st.sampled_from([None, 4, 5, 30]))
async def test_any_bytes_on_the_line(stream: bytes, claims: int | None) -> None:
    """Whatever arrives, each request has an answer, has failed, or waits on an open connection."""
    line = Line()
    for _ in range(3):
        line.ask()
    if claims is not None:
        stream = struct.pack(">ii", claims, 1) + stream
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_BELIEVED_BYTES", MIB)
        line.feed(stream)
    told = len(line.frames.received) + len(line.frames.lost)

    assert told == 3 if line.connection.is_closed else told + len(line.connection._waiting) == 3
    line.connection.close()


async def test_a_size_is_believed_as_far_as_bytes_come() -> None:
    """Four bytes that claim two gigabytes take no such memory."""
    line = Line()
    line.ask()
    line.feed(struct.pack(">ii", 2**31 - 1, 1))

    assert line.connection._frames._frame is not None
    assert len(line.connection._frames._frame) <= 64 * MIB
    line.connection.close()


async def test_answers_that_grow_arrive_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is larger than what is believed at once arrives as it was sent, and so does the next one."""
    monkeypatch.setattr(frames, "_BELIEVED_BYTES", 2 * MIB)
    line = Line()
    bodies = [Random(size).randbytes(size) for size in (9 * MIB + 5, 4 * MIB - 4, 17)]
    for number, body in enumerate(bodies, 1):
        line.ask()
        line.feed(frame(number, body), iter(lambda: 300_001, None))

    assert [received[4:] == body for received, body in zip(line.frames.received, bodies, strict=True)] == [True] * 3


@pytest.mark.parametrize("version", [8, 13])
@settings(max_examples=200)
@given(random=RANDOMS, times=st.integers(1, 4), tail=st.binary(max_size=20))
def test_any_answer_to_a_produce(version: int, random: Random, times: int, tail: bytes) -> None:
    """What comes of an answer to a produce is acknowledgements or the one error that the connection knows."""
    row = struct.pack(">ihqqqi", 1, 0, 7, -1, 0, 1) + struct.pack(">ih1s", 0, 1, b"x") + struct.pack(">h", -1)
    answer = struct.pack(">iih1si", 1, 1, 1, b"t", 2) + row + row + struct.pack(">i", 0) + tail
    if version >= BY_ID_API_VERSION:
        told = [(None, [(n, 0, 7, -1, 0, [(0, "x")], None) for n in (1, 2)])]
        answer = struct.pack(">i", 1) + told_by_id(told) + tail
    assert len(read_answer(memoryview(answer), version)[0]) == 2
    for _ in range(times):
        answer = answer[:4] + damaged(answer[4:], random)
    try:
        acks, _ = read_answer(memoryview(answer), version)
    except MalformedAnswerError:
        return
    assert all(isinstance(ack, PartitionAck) for ack in acks)


def test_an_answer_that_leads_back_is_none() -> None:
    """A name of a negative length lets each topic begin where the last one did, as often as the answer claims."""
    with pytest.raises(MalformedAnswerError):
        read_answer(memoryview(struct.pack(">iihihi", 1, 2**20, 0, 0, -6, 0)))


@pytest.mark.parametrize(("length", "is_read"), [(0x7FFF, True), (0x8000, False)])
async def test_a_text_that_no_request_could_carry_is_not_read(length: int, is_read: bool) -> None:
    """Compact texts may claim any length; as a group's name, one of more than 2^15 - 1 bytes could not be sent back."""
    line, kind = Line(), structs()[16, 5]
    asked = asyncio.ensure_future(line.connection.send(_Asked(kind)))
    await asyncio.sleep(0)
    group = ("x" * length, "consumer", "Stable", "classic", {})
    line.feed(frame(1, b"\0" + kind.RESPONSE_TYPE(0, 0, [group], {}).encode()))
    (said,) = await asyncio.gather(asked, return_exceptions=True)
    is_open = not line.connection.is_closed
    line.connection.close()

    assert (isinstance(said, kind.RESPONSE_TYPE), is_open) == (is_read, is_read)


async def test_a_handler_that_cannot_read_its_answer_has_lost_it() -> None:
    """A raw answer that its handler refuses ends the connection; the handler learns it once, as all behind it do."""

    class Refusing(Frames):
        def frame_received(self, _frame: memoryview) -> None:
            raise MalformedAnswerError("Produce v8", "no")

    line, refusing = Line(), Refusing()
    line.ask(handler=refusing)
    line.ask()
    line.feed(frame(1, b"x"))

    assert line.connection.is_closed
    assert [len(frames.lost) for frames in (refusing, line.frames)] == [1, 1]
    assert "its answer to Produce v8 cannot be read: no" in str(refusing.lost[0])


# What is asked by way of a cluster.

Verb = Callable[[Cluster], Awaitable[object]]


async def _assign(_generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
    return dict(joined)


async def _join(cluster: Cluster) -> None:
    member = Membership(cluster, "g", ("connect", "mm2py-1"), 10_000)
    await member.look()
    await member.join(b"{}", _assign)
    await member.beat()
    await member.leave()


async def _transact(cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "tx", 1_000)
    await producer.open()
    await producer.add(PLACES)
    await TopicLog(cluster, "t").append([LogRecord(b"k", b"v")], producer)
    await producer.commit()


async def _describe(cluster: Cluster) -> None:
    groups = Groups(cluster)
    assert set(await groups.describe(["g", "h"])) == {"g", "h"}
    assert set(await groups.committed(["g", "h"])) == {"g", "h"}


async def _commit_offsets(cluster: Cluster) -> None:
    groups = Groups(cluster)
    assert set(await groups.commit("g", dict.fromkeys(PLACES, CommittedOffset(1)))) == set(PLACES)


async def _offsets(cluster: Cluster) -> None:
    assert set(await cluster.list_offsets(PLACES, EARLIEST)) == set(PLACES)
    assert set(await cluster.list_offsets(PLACES, LATEST)) == set(PLACES)


async def _ends(cluster: Cluster) -> None:
    await cluster.refresh_metadata({"t", "h"})
    assert set(await log_ends(cluster, PLACES)) <= set(PLACES)
    assert set(await epoch_ends(cluster, dict.fromkeys(PLACES, 5))) <= set(PLACES)


async def _topics(cluster: Cluster) -> None:
    admin = Admin(cluster)
    assert set(await admin.create_topics([NewTopic("n", 1, 1, {}), NewTopic("t", 1, 1, {})])) == {"n", "t"}
    assert set(await admin.grow_partitions({"t": 3, "h": 3})) == {"t", "h"}
    assert set(await admin.delete_topics(["t", "h"])) == {"t", "h"}


async def _configs(cluster: Cluster) -> None:
    admin = Admin(cluster)
    assert set(await admin.topic_configs(["t", "h"])) == {"t", "h"}
    assert set(await admin.alter_topic_configs({"t": {"a": "1", "b": None}, "h": {"a": "1"}})) <= {"t", "h"}


async def _acls(cluster: Cluster) -> None:
    assert set(await create_topic_acls(cluster, ACLS)) <= set(ACLS)
    assert set(await delete_topic_acls(cluster, ACLS)) <= set(ACLS)


VERBS: dict[str, Verb] = {
    "metadata": lambda cluster: cluster.refresh_metadata(None),
    "offsets": _offsets,
    "ends": _ends,
    "producer id": init_producer_id,
    "topics": lambda cluster: Admin(cluster).list_topics(),
    "topics changed": _topics,
    "configs": _configs,
    "broker configs": lambda cluster: Admin(cluster).broker_configs(),
    "ACLs": describe_topic_acls,
    "ACLs changed": _acls,
    "groups": lambda cluster: Groups(cluster).list_groups(),
    "group": _describe,
    "offsets committed": _commit_offsets,
    "membership": _join,
    "transaction": _transact,
    "log read": lambda cluster: TopicLog(cluster, "t").read_all(),
    "log awaited": lambda cluster: TopicLog(cluster, "t").await_stable(),
    "log written": lambda cluster: TopicLog(cluster, "t").append([LogRecord(b"k", b"v")]),
    "log made": lambda cluster: TopicLog(cluster, "n").create(1, 1, setting="x"),
}


@settings(max_examples=20)
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@given(random=RANDOMS, answers=st.integers(3, 25))
async def test_whatever_brokers_answer_a_verb_ends(verb: Verb, random: Random, answers: int) -> None:
    """Null, rows that were not asked for, rows left out, nonsense: each verb returns, or raises an error of ours."""
    brokers = GarbledBrokers(random, answers)
    brokers.topics = {name: FakeTopic([FakePartition(), FakePartition(1)]) for name in "th"}
    for name in ("g", "h"):
        brokers.group(name)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    cluster = Cluster(brokers.endpoint, LoopClock(), opener=brokers.open)
    with suppress(Mm2Error):
        async with asyncio.timeout(3_600):
            await cluster.connect()
            await verb(cluster)
    await cluster.close()

    assert not told


@settings(max_examples=80)
@given(
    said=st.lists(st.none() | st.binary(max_size=40) | st.sampled_from([b"r=,s=,i=1", b"v="]), max_size=4),
    nonce=st.booleans(),
    iterations=st.sampled_from(["1", "0", "-1", "x", "2147483647", "9" * 30, "9" * 5_000]),
    mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
)
async def test_any_answer_to_a_login(said: list[Any], nonce: bool, iterations: str, mechanism: str) -> None:
    """A broker that says nonsense refuses the login, and costs no more work than one that does not."""
    keys = (("sasl.jaas.config", plain_line()), ("sasl.mechanism", mechanism))
    endpoint = ClusterEndpoint("A", ("b:9092",), security=Security("SASL_PLAINTEXT", keys))
    answers = iter(said)

    async def send(request: Any) -> Any:
        prepared = request.prepare({17: (0, 1), 36: (0, 1)})
        if prepared.API_KEY == 17:
            return prepared.RESPONSE_TYPE(0, [mechanism])
        first = prepared.sasl_auth_bytes
        answer = next(answers, b"")
        if nonce and first.startswith(b"n,,"):
            answer = b"r=" + first.partition(b",r=")[2] + b"x,s=AA==,i=" + iterations.encode()
        return prepared.RESPONSE_TYPE(0, None, answer or b"", 2**63 - 1)

    with suppress(LoginRefusedError):
        await log_in(endpoint, "b", send)


@pytest.mark.parametrize(
    ("host", "port"), [("a..b", 9092), ("x" * 70, 9092), ("a\0b", 9092), ("127.0.0.1", 70_000), ("127.0.0.1", -1)]
)
async def test_an_address_that_makes_no_sense_is_a_broker_that_is_not_there(host: str, port: int) -> None:
    """Addresses of brokers come from brokers, too."""
    with pytest.raises(BrokerConnectionError):
        await BrokerConnection.open(ENDPOINT, host, port)
