"""Splitting an index of runs into stored chunks, and assembling it again. Stored chunks are valid for their topic; but
a crash may have left older chunks beside newer ones. So gaps between two chunks are unknown, and overlaps count once.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from mm2py.core.offsets.translation import RunIndex
from mm2py.model.run_chunk import KeptChunk, RunChunk


CHUNK_RUNS = 4096


def chunk_count(index: RunIndex) -> int:
    """Return the number of chunks of *index*; an empty one, which still records what it covers, has one."""
    return max(1, -(-len(index) // CHUNK_RUNS))


def changed_chunks(index: RunIndex) -> range:
    """Return the numbers of the chunks that have changed since `index.first_changed` was last None."""
    if index.first_changed is None:
        return range(0)
    return range(min(index.first_changed // CHUNK_RUNS, chunk_count(index) - 1), chunk_count(index))


def cut_chunk(index: RunIndex, number: int) -> RunChunk:
    """Return one chunk of *index*."""
    first, behind = number * CHUNK_RUNS, (number + 1) * CHUNK_RUNS
    is_last = behind >= len(index)
    return RunChunk(
        covered_from=index.starts[first] if number else index.covered_from,
        covered_to=index.covered_to if is_last else index.starts[behind],
        end_from=index.downs[first] if number else index.end_from,
        end=index.end if is_last else index.downs[behind],
        is_origin=index.is_origin and not number,
        starts=index.starts[first:behind],
        downs=index.downs[first:behind],
        spans=index.spans[first:behind],
        counts=index.counts[first:behind],
    )


def put_together(kept: Iterable[KeptChunk]) -> RunIndex | None:
    """Return the index from the *kept* chunks of one topic-partition; None if there are none."""
    index: RunIndex | None = None
    for one in sorted(kept, key=attrgetter("number")):
        chunk = one.chunk
        if chunk is None:
            continue
        if index is None:
            index = RunIndex(chunk.covered_from, chunk.end_from, is_origin=chunk.is_origin)
        index.append_chunk(chunk)
    return index
