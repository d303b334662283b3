"""
A Kafka cluster: brokers, topics and their replicas, who coordinates what, and what befalls all of them.

What is modelled after which of Kafka's classes: elections and in-sync replicas (ReplicationControlManager, Partition),
expiry of producers (ProducerStateManager), coordinators that move and load (GroupCoordinatorShard,
TransactionStateManager). The controller has no address. An authorizer keeps clients from a whole topic
for a while (`denies`), whatever its ACLs say. Left out: log directories.
Compaction does not come by itself: `Partition.compact`; retention neither, but in a world.
"""

from __future__ import annotations

import base64
import collections
import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from mm2py.wire.error_codes import ErrorCode
from tests.simulated import requests
from tests.simulated.broker import Broker, Line
from tests.simulated.coordination import GroupCoordinator, Transaction
from tests.simulated.log import NOBODY, Batch, Partition
from tests.simulated.loop import Host, SimLoop
from tests.simulated.network import Network
from tests.simulated.requests.acls import Acl


#: Partitions of the topics that coordinators keep their state in.
SLOTS = 5


@attrs.define(eq=False)
class Topic:
    """A topic: its id, its partitions, and the configs that were set."""

    name: str
    topic_id: str
    partitions: list[Partition]
    configs: dict[str, str] = attrs.field(factory=dict)
    created_at: float = 0.0


@attrs.define
class Times:
    """How long things take in a cluster."""

    work_s: float = 0.0003
    replication_s: float = 0.002
    #: Until the controller notices a broker that is gone or silent, and until an election is known.
    notice_s: float = 9.0
    rejoin_s: float = 2.0
    load_s: float = 0.5
    markers_s: float = 0.003


class Cluster:
    """Brokers, topics, groups, transactional ids."""

    #: Access control entries, in the order in which they were created; None is no authorizer.
    acls: dict[Acl, None] | None = None

    def __init__(
        self, name: str, loop: SimLoop, network: Network, seed: int, *, brokers: int = 3,
        tell: Callable[..., None] = lambda *_: None, forgets: bool = True,
    ) -> None:  # fmt: skip
        self.name = name
        self.loop = loop
        self.network = network
        self.random = random.Random(f"cluster {name} {seed}")
        self.times = Times()
        self.min_isr = 1
        self.tell = tell
        self.wall_ms: Callable[[], int] = lambda: round(loop.time() * 1000)
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[str, Topic] = {}
        #: The last one that was deleted, by name.
        self.deleted: dict[str, Topic] = {}
        self.transactions: dict[str, Transaction] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        #: Error codes in answers.
        self.codes: collections.Counter[int] = collections.Counter()
        #: Called for each batch that a client appends, and for what an election loses.
        self.on_append: Callable[[Partition, Batch], None] = lambda _p, _b: None
        self.on_loss: Callable[[Partition, list[Batch]], None] = lambda _p, _b: None
        #: Whose request is being executed that appends.
        self.sender: Host | None = None
        #: Called around each request; whether it is not executed any more.
        self.ambush: Callable[..., bool] | None = None
        #: Called for each request.
        self.trace: Callable[[str, str, int, bytes], None] = lambda *_: None
        #: The cluster's own affairs, which go on whatever broker is down.
        self.host = Host(loop, f"{name} controller")
        self.brokers = {node: Broker(self, node) for node in range(brokers)}
        self.fenced: dict[int, None] = {}
        for broker in self.brokers.values():
            network.listen(broker.address, 9092, broker)
        self.slots = {slot: slot % brokers for slot in range(SLOTS)}
        self._loading: dict[int, float] = {}
        self.coordinator = GroupCoordinator(loop.time, self.host.call_later, lambda *it: self.tell(name, *it))
        self.coordinator.first_delay_s = 0.5
        #: Groups whose members are each told that there are no others.
        self.apart: dict[str, None] = {}
        self.expires_ms = 86_400_000
        if forgets:
            self.host.call_later(600.0, self._forget_producers)
        #: Until when brokers, by number, cannot write to their disks.
        self.full_until: dict[int, float] = {}
        #: How long who fetches or produces is told to wait, as one that exceeds its quota (KIP-219).
        self.throttle_ms = 0
        #: Until when transactional ids cannot be opened.
        self.refuses_ids_until = 0.0
        #: Until when the mirror may neither describe, read nor write topics.
        self.denied_until: dict[str, float] = {}
        self.producer_ids = 1000 * (1 + len(name))
        self._topic_numbers = 0

    @property
    def servers(self) -> str:
        """Return the bootstrap servers."""
        return ",".join(f"{host}:{port}" for host, port in (it.advertised for it in self.brokers.values()))

    def heard(self, line: Line, key: int, frame: bytes) -> None:
        """Count a request, and trace it."""
        self.counts[requests.NAMES[key]] += 1
        self.trace(line.broker.address, line.client.name, key, frame)

    def denies(self, topic: str) -> bool:
        """Whether an authorizer keeps clients from a topic."""
        return self.denied_until.get(topic, 0.0) > self.loop.time()

    # Topics and replicas.

    def create(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> Topic:
        """Create a topic."""
        self._topic_numbers += 1
        raw = zlib.crc32(self.name.encode()).to_bytes(8, "big") + self._topic_numbers.to_bytes(8, "big")
        topic_id = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        topic = Topic(name, topic_id, [], dict(configs or {}), self.loop.time())
        self.topics[name] = self.by_id[topic_id] = topic
        self.grow(topic, partitions)
        return topic

    def grow(self, topic: Topic, count: int) -> None:
        """Add partitions."""
        nodes = list(self.brokers)
        for number in range(len(topic.partitions), count):
            at = (zlib.crc32(topic.name.encode()) + number) % len(nodes)
            replicas = nodes[at:] + nodes[:at]
            partition = Partition(topic.name, number, replicas)
            partition.isr = [node for node in replicas if node not in self.fenced]
            partition.leader = partition.isr[0] if partition.isr else NOBODY
            partition.isr = partition.isr or replicas[:1]  # which leads once it is back
            topic.partitions.append(partition)

    def delete(self, name: str) -> None:
        """Delete a topic: who waits for it learns of it, and groups forget it (OffsetMetadataManager)."""
        topic = self.deleted[name] = self.topics.pop(name)
        del self.by_id[topic.topic_id]
        for group in self.coordinator.groups.values():
            group.offsets = {key: at for key, at in group.offsets.items() if key[0] != name}
        for partition in topic.partitions:
            partition.leader = NOBODY
            partition.wake()

    def partitions_of(self, names: Iterable[str]) -> list[Partition]:
        """Return the partitions of those topics that are there."""
        return [partition for name in names if name in self.topics for partition in self.topics[name].partitions]

    def all_partitions(self) -> list[Partition]:
        """Return all partitions there are."""
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def appended(self, broker: Broker, partition: Partition, batch: Batch) -> None:
        """A leader has a batch: the other replicas follow."""
        self.on_append(partition, batch)
        broker.host.call_later(
            self.times.replication_s * (0.5 + self.random.random()), self._replicated, partition, batch.last + 1,
            partition.leader_epoch,
        )  # fmt: skip

    def _replicated(self, partition: Partition, end: int, epoch: int) -> None:
        if partition.leader_epoch != epoch:
            return
        if all(self.brokers[node].is_up for node in partition.isr):
            partition.raise_watermark(end)
        else:  # a replica that is not noticed yet holds it back
            self.host.call_later(0.1, self._replicated, partition, end, epoch)

    def _forget_producers(self) -> None:
        """Forget producers by the timestamps of their last records, as ProducerStateManager.isProducerExpired does."""
        now = self.wall_ms()
        for partition in self.all_partitions():
            for producer_id, known in list(partition.producers.items()):
                is_idle = producer_id not in partition.open and bool(known.seen)
                if is_idle and now - known.seen[-1].max_timestamp >= self.expires_ms:
                    del partition.producers[producer_id]
        self.host.call_later(600.0, self._forget_producers)

    # What befalls brokers.

    def crash(self, node: int) -> None:
        """A broker's process ends."""
        broker = self.brokers[node]
        broker.host.kill()
        self.network.drop_host(broker.host)
        broker.lines.clear()
        self.host.call_later(self.random.random() * self.times.notice_s, self._notice, node, broker.host)

    def freeze(self, node: int) -> None:
        """Have a broker hang."""
        broker = self.brokers[node]
        broker.host.freeze()
        self.host.call_later(self.times.notice_s, self._notice, node, broker.host)

    def thaw(self, node: int) -> None:
        """Let a broker that hung go on."""
        self.brokers[node].host.thaw()
        if node in self.fenced:
            self.host.call_later(self.times.rejoin_s * self.random.random(), self._rejoin, node)

    def restart(self, node: int) -> None:
        """Start a broker again; it knows no session, and follows before it leads."""
        broker = self.brokers[node]
        if not broker.host.is_dead:
            return
        if node not in self.fenced:
            self._fence(node)
        broker.host = Host(self.loop, broker.address)
        broker.lines, broker.sessions, broker.stale = {}, {}, None
        self.host.call_later(self.times.rejoin_s * (0.2 + self.random.random()), self._rejoin, node)

    def _notice(self, node: int, host: Host) -> None:
        broker = self.brokers[node]
        if broker.host is host and not broker.is_up and node not in self.fenced:
            self._fence(node)

    def _fence(self, node: int) -> None:
        """The controller takes a broker's partitions away from it."""
        self.fenced[node] = None
        self.tell(self.name, "fenced", node)
        for partition in self.all_partitions():
            if node in partition.isr and len(partition.isr) > 1:
                partition.isr.remove(node)
                partition.left[node] = partition.high_watermark
                if partition.leader == node:
                    self.elect(partition)
            elif partition.leader == node:
                partition.leader = NOBODY
                partition.wake()
                self._elect_unclean(partition)
        alive = [it for it in self.brokers if it not in self.fenced]
        for slot, coordinator in self.slots.items():
            if coordinator == node and alive:
                self.move_coordinators(slot, alive[slot % len(alive)])

    def _rejoin(self, node: int) -> None:
        if node not in self.fenced or not self.brokers[node].is_up:
            return
        self.fenced.pop(node)
        self.tell(self.name, "rejoined", node)
        for partition in self.all_partitions():
            if partition.leader == NOBODY and node not in partition.isr:
                self._elect_unclean(partition)
            elif partition.leader == NOBODY:  # the last one that had all; the others can follow it now
                partition.isr = [node]
                self.elect(partition)
                partition.isr += [it for it in partition.replicas if it != node and it not in self.fenced]
            elif node not in partition.isr:
                partition.isr.append(node)
        for slot, coordinator in self.slots.items():
            if coordinator in self.fenced:
                self.move_coordinators(slot, node)

    def elect(self, partition: Partition, leader: int | None = None) -> None:
        """Have another replica lead. What was not on all of them may be lost: acknowledged is none of it."""
        able = [node for node in partition.isr if node not in self.fenced]
        partition.leader_epoch += 1
        lost: list[Batch] = []
        if partition.end > partition.high_watermark:
            beyond = [it.base for it in partition.batches if it.base >= partition.high_watermark]
            lost = partition.truncate(self.random.choice([*beyond, partition.end]))
        if lost:
            self.on_loss(partition, lost)
        partition.leader = leader if leader is not None else able[0] if able else NOBODY
        partition.wake()
        if partition.leader != NOBODY:
            # A coordinator writes a marker until all replicas have it (TransactionMarkerRequestCompletionHandler).
            for marker in (it for it in lost if it.is_control):
                self.appended(self.brokers[partition.leader], partition, partition.append(marker.raw, marker.writer))
            partition.high_watermark = min(partition.high_watermark, partition.end)
            self.host.call_later(
                self.times.replication_s, self._replicated, partition, partition.end, partition.leader_epoch
            )

    def _elect_unclean(self, partition: Partition) -> None:
        """Have a replica lead that was not in sync, if the topic allows it: all that it lacks is lost."""
        able = [it for it in partition.replicas if it not in self.fenced and it not in partition.isr]
        if able and self.topics[partition.topic].configs.get("unclean.leader.election.enable") == "true":
            partition.isr = [able[0]]
            self._take_over(partition, able[0], partition.left.get(able[0], 0))

    def lose(self, partition: Partition, count: int) -> int:
        """An unclean election: a replica leads that lacks the last *count* batches, acknowledged or not."""
        if partition.leader == NOBODY or not partition.batches:
            return 0
        kept = partition.batches[-count].base if count <= len(partition.batches) else 0
        others = [node for node in self.brokers if node not in self.fenced]
        return self._take_over(partition, self.random.choice(others) if others else NOBODY, kept)

    def _take_over(self, partition: Partition, leader: int, end: int) -> int:
        partition.leader_epoch += 1
        lost = partition.truncate(end)
        self.on_loss(partition, lost)
        partition.leader = leader
        partition.high_watermark = partition.end
        partition.wake()
        return len(lost)

    def move_leader(self, partition: Partition) -> None:
        """A preferred election, or a reassignment: nothing is lost."""
        others = [it for it in partition.isr if it != partition.leader and it not in self.fenced]
        if others and partition.leader != NOBODY:
            partition.high_watermark = max(partition.high_watermark, partition.end)
            self.elect(partition, self.random.choice(others))

    def move_coordinators(self, slot: int, node: int) -> None:
        """Groups and transactional ids of a partition of their topics get another coordinator, which loads them."""
        self.slots[slot] = node
        self._loading[slot] = self.loop.time() + self.times.load_s * self.random.random()
        self.tell(self.name, "coordinators", slot, node)
        for name in self.coordinator.groups:
            if self.slot(name) == slot:
                self.coordinator.moved(name)

    # Who coordinates.

    def slot(self, name: str) -> int:
        """Return the partition of the coordinators' topics that a group or a transactional id is in."""
        return zlib.crc32(name.encode()) % SLOTS

    def away(self, broker: Broker, name: str) -> int:
        """Return the error where *broker* is asked for what it does not coordinate, or not yet."""
        slot = self.slot(name)
        if self.slots[slot] != broker.node:
            return int(ErrorCode.NOT_COORDINATOR)
        return int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if self._loading.get(slot, 0.0) > self.loop.time() else 0

    def image(self) -> Any:
        """Return what metadata says now."""
        alive = [node for node in self.brokers if node not in self.fenced]
        topics: dict[str, tuple[str, list[Any]]] = {
            name: (
                topic.topic_id,
                [
                    (
                        0 if p.leader != NOBODY else 5,
                        p.number,
                        p.leader,
                        p.leader_epoch,
                        list(p.replicas),
                        list(p.isr),
                        [],
                        {},
                    )
                    for p in topic.partitions
                ],
            )
            for name, topic in self.topics.items()
        }
        return alive, topics

    def partition(self, topic: str, number: int) -> Partition | None:
        """Return a partition if there is one."""
        found = self.topics.get(topic)
        return found.partitions[number] if found and number < len(found.partitions) else None

    def verify(self, partition: Partition, name: str, producer_id: int, epoch: int) -> int:
        """Return why a partition is in no open transaction of that producer, as its coordinator knows it (KIP-890)."""
        known, slot = self.transactions.get(name), self.slot(name)
        if self._loading.get(slot, 0.0) > self.loop.time() or not self.brokers[self.slots[slot]].is_up:
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)  # whatever it is, clients try again
        if known is None or known.producer_id != producer_id:
            return int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.epoch != epoch:
            return int(ErrorCode.INVALID_PRODUCER_EPOCH)
        if known.is_ending:
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        is_in_it = known.state == "Ongoing" and (partition.topic, partition.number) in known.partitions
        return 0 if is_in_it else int(ErrorCode.INVALID_TXN_STATE)
