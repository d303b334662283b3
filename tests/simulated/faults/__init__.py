"""
The kinds of faults, by the names that options have for them.

A fault takes the world and a source of chance that is its own, so that one can be left out without a change to the
others; it breaks something, has `World.later` mend it, and returns what it did in words.
"""

from __future__ import annotations

from tests.simulated.faults import ambush, batches, brokers, grants, lines, nodes
from tests.simulated.faults.kind import Fault


FAULTS: dict[str, Fault] = {
    name: fault for of in (nodes, brokers, lines, ambush, batches, grants) for name, fault in of.FAULTS.items()
}
#: Acknowledged records are lost by these: the flow copies them again, and the checker allows for it.
LOSING = ("unclean",)
#: While its ids are forbidden a node that was replaced may write old positions: that is reported, and no fault of it.
UNGUARDED = ("ids",)
#: Those that a swarm draws beside the others, and seldom: of the others each is as frequent as without them.
SELDOM = (
    "away", "hang", "executor", "refused", "late", "recreate", "remake", "delete", "storage", "reload",
    "rights", "locked", "acl", "quota",
)  # fmt: skip
#: Those that no swarm draws: while each node copies all they are at odds for most of the time, which costs more than
#: other faults. Options have them by name.
BY_NAME = ("apart",)
#: Those that a flow survives without a trace.
SURVIVED = tuple(name for name in FAULTS if name not in (*LOSING, *UNGUARDED, *SELDOM, *BY_NAME))
