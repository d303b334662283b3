"""The figures of a latency run say what arrived and what did not."""

import pytest

from bench.latency import PARTITIONS, quantile, summed_up


def test_quantiles_are_values_that_occurred() -> None:
    """Half of 1 to 100 is at most 50, all but one at most 99."""
    ordered = [float(number) for number in range(1, 101)]

    assert quantile(ordered, 0.50) == 50.0
    assert quantile(ordered, 0.99) == 99.0
    assert quantile([7.0], 0.99) == 7.0


@pytest.mark.parametrize(
    ("numbers", "missing", "repeated"),
    [
        (range(40), 0, 0),
        ([number for number in range(40) if number != 17], 1, 0),
        ([*range(40), 5, 5], 0, 2),
        (range(3, 40), 0, 0),
    ],
    ids=["complete", "one lost", "one three times", "began in the middle"],
)
def test_numbers_tell_losses_and_repetitions(numbers: list[int], missing: int, repeated: int) -> None:
    """Within what a partition brought, gaps are losses and equal numbers repetitions."""
    figures = summed_up([(number, 1.0) for number in numbers])

    assert (figures.missing, figures.repeated) == (missing, repeated)
    assert figures.records == len(list(numbers))


def test_partitions_that_run_ahead_are_no_loss() -> None:
    """At the window's edges partitions may be some records apart."""
    ahead = [(number * PARTITIONS, 1.0) for number in range(5)]
    behind = [(number * PARTITIONS + 1, 1.0) for number in range(3)]

    assert summed_up(ahead + behind).missing == 0
