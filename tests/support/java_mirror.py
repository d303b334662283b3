"""A mirror that the real Java MirrorMaker 2 made: what it keeps on the target, written by Java alone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from mm2py.devkit.java import JvmOptions
from mm2py.model.flow import TopicPartition
from tests.support.eventually import eventually
from tests.support.groups import commit_plainly
from tests.support.java_mm2 import JavaMirrorMaker2
from tests.support.java_programs import java_program
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_numbers
from tests.support.reading import read_topic
from tests.support.topics import create_topic, list_topics


RECORDS = 600
PARTITIONS = 2
#: Within which Java has all checkpoints, unless it never has; and before it is run for the last time.
_LIMIT_S, _SOON_S = 60.0, 20.0


@attrs.frozen
class JavaMirror:
    """Two clusters and a flow with aliases of its own, two groups, and the properties file it was made from."""

    source: str
    target: str
    source_alias: str
    target_alias: str
    topic: str
    file: Path

    @property
    def remote_topic(self) -> str:
        return f"{self.source_alias}.{self.topic}"

    @property
    def checkpoints_topic(self) -> str:
        return f"{self.source_alias}.checkpoints.internal"

    @property
    def offset_syncs_topic(self) -> str:
        return f"mm2-offset-syncs.{self.source_alias}.internal"

    @property
    def positions_topic(self) -> str:
        return f"mm2-offsets.{self.source_alias}.internal"

    @property
    def at_end(self) -> str:
        """A group that has read everything."""
        return f"{self.topic}-at-end"

    @property
    def halfway(self) -> str:
        """A group that is in the middle of one partition."""
        return f"{self.topic}-halfway"


@contextmanager
def java_mirror(source: str, target: str, work_dir: Path) -> Iterator[JavaMirror]:
    """
    Mirror a topic and two groups with Java MirrorMaker 2 and stop it, so that nothing moves any more.

    Offset syncs lie at the target, one for each record; heartbeats go both ways. Java has ten syncs under way at most,
    and leaves out what comes meanwhile: if it has none of what `halfway` has read, it never writes a checkpoint of it,
    and is run once more.
    """
    for limit_s in (_SOON_S, _SOON_S, _LIMIT_S):
        mirror = _begin(source, target, work_dir)
        java = JavaMirrorMaker2(mirror.file, log_file=work_dir / "java.log", jvm=JvmOptions(heap_mb=256))
        try:
            java.start()
            asyncio.run(_await_all(mirror, within_s=limit_s))
            java.stop()
        except AssertionError:
            if limit_s == _LIMIT_S:
                raise
        else:
            yield mirror
            return
        finally:
            java.kill()


def _begin(source: str, target: str, work_dir: Path) -> JavaMirror:
    """Write the records, the groups and the file of one run."""
    mark = secrets.token_hex(3)
    mirror = JavaMirror(source, target, f"east{mark}", f"west{mark}", f"orders-{mark}", work_dir / "mm2.properties")
    mirror.file.write_text(
        mm2_properties(
            source,
            target,
            aliases=(mirror.source_alias, mirror.target_alias),
            topics=mirror.topic,
            groups=f"{mirror.topic}-.*",
            **{
                "emit.heartbeats.enabled": "true",
                "heartbeats.replication.enabled": "true",
                "offset-syncs.topic.location": "target",
                "offset.lag.max": "0",
                "emit.checkpoints.interval.seconds": "1",
                f"{mirror.target_alias}.offset.flush.interval.ms": "1000",
            },
        )
    )
    asyncio.run(_prepare(mirror))
    return mirror


async def _prepare(mirror: JavaMirror) -> None:
    await create_topic(mirror.source, mirror.topic, partitions=PARTITIONS)
    await produce_numbers(mirror.source, mirror.topic, count=RECORDS, partitions=PARTITIONS)
    each = RECORDS // PARTITIONS
    ends = {TopicPartition(mirror.topic, number): each for number in range(PARTITIONS)}
    await commit_plainly(mirror.source, mirror.at_end, ends)
    await commit_plainly(mirror.source, mirror.halfway, {TopicPartition(mirror.topic, 0): each // 2})


async def _await_all(mirror: JavaMirror, *, within_s: float) -> None:
    """
    Wait until both groups have checkpoints and a heartbeat has been mirrored, as Java's own client sees them, and the
    positions are those of the end.
    """
    await await_arrived(mirror.target, mirror.remote_topic, RECORDS, within_s=120)
    program = java_program("RemoteClusters")

    async def all_there() -> bool:
        wanted = {mirror.checkpoints_topic, f"{mirror.source_alias}.heartbeats"}
        missing = wanted - await list_topics(mirror.target)
        assert not missing, f"no {missing}"
        question = f"matching:{mirror.source_alias}:{mirror.topic}-.*"
        checkpoints = await program.ask(mirror.target, "--", question)
        assert len(checkpoints) == PARTITIONS + 1, checkpoints
        # On a busy machine Java ends before it has written the last positions.
        contents = await read_topic(mirror.target, mirror.positions_topic)
        stored = {record.key or b"": record.value for records in contents.values() for record in records}
        ends = [
            value
            for key, value in stored.items()
            if key.startswith(b'["MirrorSourceConnector"') and mirror.topic.encode() in key
        ]
        assert ends == [b'{"offset":%d}' % (RECORDS // PARTITIONS - 1)] * PARTITIONS, ends
        return True

    await eventually(all_there, within_s=within_s, what="Java has written checkpoints of both groups", every_s=1)
