"""
Which columns cross to Spark's JVM and back.

Each value of each row is copied several times on its way. Topic and partition of a record are known where it is read
and where it is written; they and its timestamp's type travel only where a transform looks at them or changes them. What
it leaves alone of the others is carried past the JVM.
"""

from __future__ import annotations

import attrs

from mm2py.pipeline.spark.internals import column_ids, used_columns
from mm2py.pipeline.transform.columns import NAMES
from mm2py.pipeline.transform.sql.dataframe import Analysed


#: The worker that writes knows them from its plan.
_KNOWN_THERE = frozenset({"topic", "partition"})
#: It does not use this one.
_UNUSED_THERE = "timestamp_type"
#: Carrying costs a file, which is less than one of these costs in the JVM; so a timestamp is not carried alone.
_LONG = frozenset({"key", "value", "headers"})
_CARRIED = ("timestamp", "key", "value", "headers")


@attrs.frozen
class Crossing:
    """The columns that are read for a transform, those that it gives back, and those that are carried past it."""

    reads: tuple[str, ...] = NAMES
    gives: tuple[str, ...] = NAMES
    carried: tuple[str, ...] = ()
    #: Whether offsets are only passed on, so that others can travel in their place.
    has_row_ids: bool = False

    def with_places(self) -> Crossing:
        """Return this with topic and partition, which tell records of several ranges apart."""
        return attrs.evolve(self, reads=_with_places(self.reads), gives=_with_places(self.gives))

    @property
    def reads_timestamps(self) -> bool:
        """Whether timestamps are read, to be looked at or to be carried."""
        return "timestamp" in self.reads or "timestamp" in self.carried

    @property
    def keeps_places(self) -> bool:
        """Whether the transform leaves topic and partition as they are."""
        return _KNOWN_THERE.isdisjoint(self.gives)


def _with_places(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in NAMES if name in _KNOWN_THERE or name in names)


def crossing_of(transform: Analysed) -> Crossing:
    """Find out by Spark's own analysis of a transform."""
    made = transform.made
    before, after = column_ids(transform.records), column_ids(made)
    kept = {name for name in NAMES if after[name] == before[name]}
    carried = _carried(kept) if transform.is_row_by_row else ()
    left_out = {_UNUSED_THERE, *carried, *(_KNOWN_THERE & kept)}
    gives = tuple(name for name in NAMES if name not in left_out)
    used = used_columns(made.select(*gives))
    if used is None:
        return Crossing(NAMES, gives, carried)
    # Without a column there are no rows.
    reads = tuple(name for name in NAMES if before[name] in used or name == "offset")
    return Crossing(reads, gives, carried, has_row_ids=_has_row_ids(transform, kept, gives, before["offset"]))


def _has_row_ids(transform: Analysed, kept: set[str], gives: tuple[str, ...], offset: int) -> bool:
    if not transform.is_row_by_row or "offset" not in kept:
        return False
    used = used_columns(transform.made.select(*(name for name in gives if name != "offset")))
    return used is not None and offset not in used


def _carried(kept: set[str]) -> tuple[str, ...]:
    """Return which of the columns that a transform has *kept* are carried: an offset tells whose they are."""
    return tuple(name for name in _CARRIED if name in kept) if "offset" in kept and kept & _LONG else ()
