"""Numbers that add up, each defined once: from a worker up to the metrics of a flow."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs


@attrs.define(kw_only=True, eq=False)
class Sums:
    """What `Counters` and `Effort` have in common; `_summed` are the names of their own fields."""

    _summed: ClassVar[tuple[str, ...]] = ()

    def counts(self) -> dict[str, Any]:
        """Return the numbers by name, as arguments for another value that has them."""
        return {name: getattr(self, name) for name in self._summed}

    def counts_with(self, other: Sums) -> dict[str, Any]:
        """Return the sums of these numbers and those of *other*, likewise."""
        return {name: getattr(self, name) + getattr(other, name) for name in self._summed}

    def add(self, other: Sums) -> None:
        """Add those of *other* to these, which must not be of a frozen value."""
        for name, total in self.counts_with(other).items():
            setattr(self, name, total)


@attrs.define(kw_only=True, eq=False)
class Counters(Sums):
    """
    The counters of an epoch, of a partition or of a flow, whichever derives from it.

    `records` and `bytes` were copied. Batches go to the target unchanged (`batches_unopened`), opened and
    written again (`batches_rebuilt`), or not at all (`batches_dropped`: control batches and aborted ones).
    A resume found `resumed_records` on the target that had not been accounted for. `foreign_records` are downstream
    offsets that appeared between ours: another producer writes to the remote topic.
    """

    records: int = 0
    bytes: int = 0
    batches_unopened: int = 0
    batches_rebuilt: int = 0
    batches_dropped: int = 0
    resumed_records: int = 0
    foreign_records: int = 0


@attrs.define(kw_only=True, eq=False)
class Effort(Sums):
    """
    What it took to copy: in a range of records, in an epoch or in all epochs of a copy task.

    `cpu_s` is the worker process's CPU time, `retries` counts pauses after which a partition was tried again, and
    `throttled_ms` is the time for which both clusters' quotas throttled it, `paced_ms` the time in which partitions
    that were behind waited for the target (`catch.up.latency.ms`).
    """

    cpu_s: float = 0.0
    fetches: int = 0
    produces: int = 0
    retries: int = 0
    throttled_ms: int = 0
    paced_ms: int = 0


for _kind in (Counters, Effort):
    _kind._summed = tuple(field.name for field in attrs.fields(_kind))  # noqa: SLF001 - our own classes
