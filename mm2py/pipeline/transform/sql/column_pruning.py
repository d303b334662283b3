"""
Which columns cross to Spark's JVM and back.

Each value of each row is copied several times on its way. Topic and partition of a record are known where it is read
and where it is written; they and its timestamp's type travel only where a transform looks at them or changes them.
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


@attrs.frozen
class Crossing:
    """The columns that are read for a transform, and those that it gives back."""

    reads: tuple[str, ...] = NAMES
    gives: tuple[str, ...] = NAMES

    def with_places(self) -> Crossing:
        """Return this with topic and partition, which tell records of several ranges apart."""
        return Crossing(_with_places(self.reads), _with_places(self.gives))

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
    gives = tuple(
        name for name in NAMES if name != _UNUSED_THERE and (name not in _KNOWN_THERE or after[name] != before[name])
    )
    used = used_columns(made.select(*gives))
    if used is None:
        return Crossing(NAMES, gives)
    # Without a column there are no rows.
    return Crossing(tuple(name for name in NAMES if before[name] in used or name == "offset"), gives)
