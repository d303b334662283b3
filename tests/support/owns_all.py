"""The daemon, with a group whose leader tells every node that it owns the flow and all tasks: a forced split brain."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import attrs

from mm2py.cli import mirror_maker
from mm2py.core.herder.sharing import Work, share_work
from mm2py.herder import leader
from mm2py.model.herder.share import Candidate, SharedFlow, whole_share


def _share_all(flow: str, generation: int, members: Mapping[str, Candidate], work: Work, *rest: Any) -> SharedFlow:
    shared = share_work(flow, generation, members, work, *rest)
    return attrs.evolve(shared, shares=dict.fromkeys(shared.nodes, whole_share(work.tasks)))


if __name__ == "__main__":
    leader.share_work = _share_all
    leader.needs_rebalance = lambda *_: False
    sys.exit(mirror_maker.main())
