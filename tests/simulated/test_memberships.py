"""Memberships, whatever befalls nodes and their coordinator: what a node has by what it knows no other one has."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.soaking import rounds


#: Where the seeds begin, and how many there are: among them are such as have shown faults.
_SEEDS = {"flow": (40, rounds(60, soak=1_500)), "worker": (0, rounds(30, soak=500))}
_STATES = {
    "flow": {"away", "joining", "member", "releasing", "doubted", "fenced", "occupied", "unguarded"},
    "worker": {"held", "admitted"},
}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", _SEEDS)
def test_members_keep_to_the_rules(kind: str) -> None:
    """
    Nodes die, freeze, thaw, are cut off, their coordinator hangs, brokers refuse them, Java's workers take the group,
    others their name. What others get is released before; a node has nothing where it stands by, says once for whom, or
    what it lacks; and in peace all is shared again within a minute and a half, without another rebalance.
    """
    first, count = _SEEDS[kind]
    command = [sys.executable, "-m", "tests.simulated.membership_model", kind, str(first), str(count)]
    root, environment = Path(__file__).parents[2], {**os.environ, "PYTHONHASHSEED": "0"}
    said = subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    runs = [json.loads(line) for line in said.splitlines()]
    states = sum((collections.Counter(run["states"]) for run in runs), collections.Counter())

    assert len(runs) == count
    assert [run for run in runs if run["violations"]] == []
    assert states.keys() == _STATES[kind]
