"""Pauses."""

from __future__ import annotations

import itertools

import pytest

from mm2py.core.backoff import Backoff, Contention


@pytest.mark.parametrize(
    ("failures", "jitter", "pause_s"),
    [
        pytest.param(0, 0.5, 0.0, id="no failure"),
        pytest.param(1, 0.5, 1.0, id="first"),
        pytest.param(4, 0.5, 8.0, id="doubled three times"),
        pytest.param(9, 0.5, 60.0, id="longest"),
        pytest.param(4_000, 0.5, 60.0, id="for days"),
        pytest.param(1, 0.0, 0.8, id="shortened"),
        pytest.param(9, 1.0, 72.0, id="longest, lengthened"),
    ],
)
def test_pause(failures: int, jitter: float, pause_s: float) -> None:
    """Pauses double up to the longest, and chance moves them by a fifth."""
    assert pause_s == pytest.approx(Backoff(1.0, 60.0).pause_s(failures, jitter))


def test_pauses_follow_each_other() -> None:
    """The series is the pauses of one failure after the other."""
    pauses = Backoff(1.0, 5.0).pauses(lambda: 0.5)

    assert list(itertools.islice(pauses, 5)) == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_what_is_taken_again_and_again_is_left_to_the_other_one_for_longer() -> None:
    """The first loss may be free. Once nothing was lost for long enough, it begins anew."""
    contention = Contention(Backoff(1.0, 5.0), forgotten_s=60.0, free=1)
    lost = [contention.lose(now, 0.5) for now in (0.0, 10.0, 20.0)]
    left = [contention.left_s(now) for now in (21.5, 22.0, 30.0)]

    assert lost == [0.0, 1.0, 2.0]
    assert left == [0.5, 0.0, 0.0]
    assert [contention.lose(now, 0.5) for now in (82.0, 150.0)] == [4.0, 0.0]
