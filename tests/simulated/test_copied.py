"""What the checks know of how far a remote partition is."""

from __future__ import annotations

from typing import Any, cast

from tests.simulated.copied import Copied


def test_what_comes_next_by_an_alteration_comes_again_once_it_was_lost() -> None:
    """
    An operator sets a partition back to record 41, and the target loses the first batch that is copied from there.

    What was copied before the alteration is there still, up to record 662: that does not come next.
    """
    copied = Copied(cast("Any", None), cast("Any", None))
    copied.take(0, 661, 662)
    copied.next_at = 41
    copied.take(662, 669, 49)
    counts = [copied.count]
    copied.lose(662)
    counts.append(copied.count)
    copied.take(662, 669, 49)
    copied.take(670, 673, 53)
    copied.lose(670)
    counts.append(copied.count)

    assert counts == [49, 41, 49]
