"""The counters of a topic-partition, from the batch in a worker up to the metrics of a flow, each defined once."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.define(kw_only=True, eq=False)
class Counters:
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

    def counts(self) -> dict[str, Any]:
        """Return the counters by name, as arguments for another value that has them."""
        return {name: getattr(self, name) for name in _NAMES}

    def counts_with(self, other: Counters) -> dict[str, Any]:
        """Return the sums of these counters and those of *other*, likewise."""
        return {name: getattr(self, name) + getattr(other, name) for name in _NAMES}

    def add(self, other: Counters) -> None:
        """Add those of *other* to these, which must not be of a frozen value."""
        for name, total in self.counts_with(other).items():
            setattr(self, name, total)


_NAMES = tuple(field.name for field in attrs.fields(Counters))
