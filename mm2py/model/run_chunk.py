"""The byte form of offset translations, in ``mm2-offsets.<source>.internal`` beside the positions. Only mm2py has
these records. Their keys look like those of a Kafka Connect connector named ``mm2py``, so that Java MirrorMaker and
Connect's tools treat them as another connector's offsets. An index is cut into chunks: of a long one only changed
chunks are rewritten. Each chunk records what it covers, so that any mix of older and newer chunks, as a crash may leave
it, can be assembled. Columns are stored as differences, which zlib makes small.
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from itertools import accumulate
from operator import add, sub
from typing import Any

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import INT32_MOST, UnreadableRecord, read_json, topic_name, whole, words, write_json
from mm2py.model.positions import MIRROR_SOURCE


OWNER = "mm2py"
_KIND = "runs"
_VERSION = 1
_COLUMNS = 4
#: Far more than the columns of any chunk need: a few bytes of zlib can expand to gigabytes.
_MOST_BYTES = 1024 * 1024


@attrs.frozen
class RunChunk:
    """Consecutive ranges of an index; `core.offsets.translation.RunIndex` explains them."""

    covered_from: int
    covered_to: int
    end_from: int
    end: int
    is_origin: bool
    starts: array[int] = attrs.field(repr=False)
    downs: array[int] = attrs.field(repr=False)
    spans: array[int] = attrs.field(repr=False)
    counts: array[int] = attrs.field(repr=False)


#: Marks partitions that had a position: if one has none, it was removed.
HAD_POSITION = RunChunk(
    0, 0, 0, 0, is_origin=False, starts=array("q"), downs=array("q"), spans=array("q"), counts=array("q")
)


@attrs.frozen
class KeptChunk:
    """Chunk *number* of a source partition's index, as read; without a chunk it was removed."""

    source: TopicPartition
    number: int
    topic_id: str | None = None
    chunk: RunChunk | None = None


def chunk_key(cluster: str, source: TopicPartition, number: int, connector: str = MIRROR_SOURCE) -> bytes:
    """Return the record key of a chunk of *source* of the source *cluster*, as *connector* keeps it."""
    place = {
        "chunk": number,
        "cluster": cluster,
        **({} if connector == MIRROR_SOURCE else {"connector": connector}),
        "kind": _KIND,
        "partition": source.partition,
        "topic": source.topic,
    }
    return write_json([OWNER, place])


def encode_chunk(chunk: RunChunk, topic_id: str | None) -> bytes:
    """Return the record value of *chunk*."""
    starts, downs, spans, counts = chunk.starts, chunk.downs, chunk.spans, chunk.counts
    behind = array("q", map(add, starts, spans))
    behind_down = array("q", map(add, downs, counts))
    columns = (
        map(sub, starts, array("q", [chunk.covered_from]) + behind[:-1]),
        map(sub, downs, array("q", [chunk.end_from]) + behind_down[:-1]),
        spans,
        map(sub, spans, counts),
    )
    packed = array("q")
    for column in columns:
        packed.extend(column)
    value = {
        "version": _VERSION,
        "topicId": topic_id,
        "from": chunk.covered_from,
        "to": chunk.covered_to,
        "downstreamFrom": chunk.end_from,
        "downstreamTo": chunk.end,
        "isOrigin": chunk.is_origin,
        "runs": base64.b64encode(zlib.compress(_little(packed).tobytes(), 6)).decode(),
    }
    return write_json(value)


def decode_chunk(
    key: bytes | None, value: bytes | None, connector: str = MIRROR_SOURCE
) -> tuple[str, KeptChunk] | UnreadableRecord | None:
    """Parse a record: the source cluster and the chunk; None if it is none of *connector*'s, or of a later version."""
    if key is None or not key.startswith(b'["' + OWNER.encode()):
        return None
    try:
        place = _place(read_json(key))
        if place is None or place.get("kind") != _KIND or place.get("connector", MIRROR_SOURCE) != connector:
            return None
        source = TopicPartition(topic_name(place["topic"]), whole(place["partition"], most=INT32_MOST))
        kept = KeptChunk(source, whole(place["chunk"], most=INT32_MOST))
        cluster = words(place["cluster"])
        content = None if value is None else read_json(value)
        if content is not None:
            if whole(content["version"], most=INT32_MOST) != _VERSION:
                return None
            topic_id = content["topicId"]
            kept = attrs.evolve(kept, topic_id=None if topic_id is None else words(topic_id), chunk=_chunk(content))
    except KeyError as error:
        return UnreadableRecord(f"it has no {error.args[0]}")
    except (ValueError, TypeError, OverflowError, zlib.error) as error:
        return UnreadableRecord(str(error))
    return cluster, kept


def _place(names: object) -> dict[str, Any] | None:
    match names:
        case ["mm2py", dict(place)]:
            return place
        case [str(other), *_] if other != OWNER:
            return None
        case _:
            raise ValueError("its key names no chunk")


def _chunk(content: Any) -> RunChunk:
    covered_from, end_from = whole(content["from"]), whole(content["downstreamFrom"])
    packed = array("q")
    packed.frombytes(_unpacked(base64.b64decode(words(content["runs"]), validate=True)))
    packed = _little(packed)
    count = len(packed) // _COLUMNS
    gaps, gaps_down, spans, missing = (packed[at * count : (at + 1) * count] for at in range(_COLUMNS))
    counts = array("q", map(sub, spans, missing))
    chunk = RunChunk(
        covered_from=covered_from,
        covered_to=whole(content["to"]),
        end_from=end_from,
        end=whole(content["downstreamTo"]),
        is_origin=bool(content["isOrigin"]),
        starts=_sums(covered_from, gaps, spans),
        downs=_sums(end_from, gaps_down, counts),
        spans=spans,
        counts=counts,
    )
    if not _is_sound(chunk, gaps, gaps_down, missing):
        raise ValueError("its runs contradict each other")
    return chunk


def _unpacked(runs: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    unpacked = unpacking.decompress(runs, _MOST_BYTES)
    if not unpacking.eof:
        raise ValueError("its runs are cut short, or more than a chunk holds")
    return unpacked


def _sums(first: int, gaps: array[int], lengths: array[int]) -> array[int]:
    """Return where each range begins: after all gaps and lengths before it."""
    behind = accumulate(map(add, gaps, lengths), initial=first)
    return array("q", map(add, behind, gaps))


def _is_sound(chunk: RunChunk, gaps: array[int], gaps_down: array[int], missing: array[int]) -> bool:
    if len(chunk.starts) != len(chunk.counts) or chunk.covered_to < chunk.covered_from or chunk.end < chunk.end_from:
        return False
    if not len(chunk.starts):
        return True
    return (
        min(gaps) >= 0
        and min(gaps_down) >= 0
        and min(missing) >= 0
        and min(chunk.counts) >= 0
        and min(chunk.spans) > 0
        and chunk.starts[-1] + chunk.spans[-1] <= chunk.covered_to
        and chunk.downs[-1] + chunk.counts[-1] <= chunk.end
    )


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
