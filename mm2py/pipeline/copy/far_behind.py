"""
Which partitions of a copy task are far behind, so that the others need not wait for them.

A broker fills an answer with one partition after the other, up to its size: beside a thousand of which it has megabytes
each, one that has a few new records would wait for dozens of answers. So what is far behind has fetchers of its own,
which leave a part of the buffer to the others, and senders of its own (`mm2py.pipeline.copy.sending`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from typing import Final

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.sending import BatchSender


#: Where an answer had no room for any: so few may well be the next ones of a partition that is not behind.
_FEW: Final = 1_000
#: The part of the buffer that what is far behind may fill, if not everything is.
_PART: Final = 0.75
#: What was not watched for so long may have caught up, and others may have fallen behind.
_KNOWN_FOR_S: Final = 5.0


class FarBehind:
    """Those of a copy task's partitions that are far behind, from epoch to epoch."""

    def __init__(self) -> None:
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        #: All that were behind in this epoch. Some have caught up at the source, and still send what is left.
        self._were_behind: set[PartitionCopy] = set()
        self._began = 0.0
        self._watched_at = -math.inf
        self._of = 0
        self._most_bytes = 0
        #: What answers have brought of all partitions.
        self._offsets = self._bytes = 0
        self._loop = asyncio.get_running_loop()

    def begin(self, copies: Collection[PartitionCopy], most_bytes: int) -> None:
        """
        Begin an epoch with *copies*, of each of which an answer may bring *most_bytes*.

        What is known of their partitions still holds, if it is not old.
        """
        self._began = self._loop.time()
        known = self._copies if self._began - self._watched_at <= _KNOWN_FOR_S else {}
        were_behind = self._copies or self._were_behind
        self._copies, self._of, self._most_bytes = {}, len(copies), most_bytes
        for copy in copies if were_behind else ():
            copy.fetching.is_behind = copy.sending.is_behind = copy.plan.source in known
            if copy.fetching.is_behind:
                self._copies[copy.plan.source] = copy
        self._were_behind = set(self._copies.values())

    def end(self) -> None:
        """End the epoch."""
        self._watched_at = self._loop.time()

    def note(self, copy: PartitionCopy, offsets: int, size_bytes: int) -> None:
        """
        Note that an answer brought so many *offsets* of *copy*, in so many bytes.

        It falls behind if the source has more left than an answer may bring, and stays so until nothing is left: else
        one with about as much would go back and forth.
        """
        fetching = copy.fetching
        self._offsets += offsets
        self._bytes += size_bytes
        end = fetching.last_stable_offset if fetching.last_stable_offset >= 0 else fetching.high_watermark
        left = end - fetching.position.offset
        if fetching.is_behind:
            is_behind = left > 0
        elif offsets:
            is_behind = left * size_bytes > offsets * self._most_bytes
        else:  # its records may be as large as those of others
            is_behind = left > _FEW or left * self._bytes > self._offsets * self._most_bytes
        if is_behind and not fetching.is_behind:
            self._copies[copy.plan.source] = copy
            self._were_behind.add(copy)
        elif fetching.is_behind and not is_behind:
            self._copies.pop(copy.plan.source, None)
        fetching.is_behind = is_behind

    def has_room(self, sender: BatchSender, left_s: float, *, is_behind: bool) -> bool:
        """Whether one more fetch of what *is_behind*, or of the others, may be sent so long before the epoch's end."""
        buffered_bytes, buffer_bytes = sender.buffered_bytes, sender.limits.buffer_bytes
        if not self._copies or len(self._copies) == self._of:
            return buffered_bytes < buffer_bytes
        part = max(1, int(buffer_bytes * _PART))
        if is_behind:
            return buffered_bytes < part and self._is_soon_sent(sender, left_s)
        # Each fetch of what is behind may bring more than there was room for. The others still have theirs.
        return buffered_bytes < buffer_bytes or buffered_bytes - self._buffered_bytes < buffer_bytes - part

    def _is_soon_sent(self, sender: BatchSender, left_s: float) -> bool:
        """Whether the target takes one more answer before the epoch ends: the others are not fetched until it has."""
        if sender.limits.catch_up_latency_ms >= 0:
            return True  # it is paced, so answers are small
        took_s = self._loop.time() - self._began
        bytes_left = sender.freed_bytes / took_s * left_s if took_s > 0 and sender.freed_bytes else math.inf
        return sender.buffered_bytes + sender.limits.fetch_max_bytes <= bytes_left or not self._buffered_bytes

    @property
    def _buffered_bytes(self) -> int:
        return sum(
            copy.buffer.size_bytes for copy in self._were_behind if copy.fetching.is_behind or copy.sending.is_behind
        )
