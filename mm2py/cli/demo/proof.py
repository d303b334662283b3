"""Whether the target holds the source's records: all of them, once, in order, with the same content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from mm2py.wire.sample_load import FINGERPRINT_BYTES


@attrs.frozen
class Proof:
    """What a comparison found. `written` is what the producers saw acknowledged; `differences` has a line for each
    partition whose two sides differ.
    """

    topics: int
    partitions: int
    written: int
    records: int
    differences: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every record that was written is at the source and, the same, at the target."""
        return not self.differences and self.records == self.written

    def plus(self, other: Proof) -> Proof:
        """Add up two proofs."""
        return Proof(
            topics=self.topics + other.topics,
            partitions=self.partitions + other.partitions,
            written=self.written + other.written,
            records=self.records + other.records,
            differences=self.differences + other.differences,
        )


def prove(topic: str, source: Mapping[int, bytes], remote: Mapping[int, bytes], *, written: int) -> Proof:
    """Compare the fingerprints of a topic's partitions with those of its remote topic."""
    return Proof(
        topics=1,
        partitions=len(source),
        written=written,
        records=sum(len(digests) for digests in source.values()) // FINGERPRINT_BYTES,
        differences=tuple(_differences(topic, source, remote)),
    )


def _differences(topic: str, source: Mapping[int, bytes], remote: Mapping[int, bytes]) -> Iterator[str]:
    for partition in sorted(source.keys() | remote.keys()):
        ours, theirs = source.get(partition, b""), remote.get(partition, b"")
        if ours != theirs:
            yield (
                f"{topic}-{partition}: {len(ours) // FINGERPRINT_BYTES:,} records at the source, "
                f"{len(theirs) // FINGERPRINT_BYTES:,} at the target, "
                f"the first difference at record {_first_difference(ours, theirs):,}"
            )


def _first_difference(ours: bytes, theirs: bytes) -> int:
    """Return the first differing record, counted from the log's start."""
    shorter = min(len(ours), len(theirs))
    for at in range(0, shorter, FINGERPRINT_BYTES):
        if ours[at : at + FINGERPRINT_BYTES] != theirs[at : at + FINGERPRINT_BYTES]:
            return at // FINGERPRINT_BYTES
    return shorter // FINGERPRINT_BYTES
