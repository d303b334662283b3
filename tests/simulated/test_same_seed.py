"""The same seed is the same run, or no failure could be looked into."""

from __future__ import annotations

import pytest

from tests.support.simulating import simulate


_SEEDS = ("--from", "203", "--seeds", "2", "--digests")


@pytest.mark.timeout(1_800)
def test_a_seed_is_the_same_run_in_each_process() -> None:
    """Each byte of each request, each append and each event, in whatever order sets of strings are."""
    digests = [_digests(simulate(*_SEEDS, hash_seed=it)) for it in range(2)]

    assert len(digests[0]) == 2
    assert digests[0] == digests[1]


def _digests(said: str) -> list[str]:
    return [line.rpartition(" ")[0] for line in said.splitlines() if line.startswith("digest ")]
