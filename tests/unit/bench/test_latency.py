"""The figures of a latency run say what arrived and what did not."""

import pytest
from aiokafka.record._crecords import MemoryRecords

from bench.batches import ProducerId
from bench.latency import PARTITIONS, VALUE_BYTES, Load, marked, numbered, quantile, summed_up, template


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


def test_each_batch_has_one_number_wherever_a_mirror_puts_it() -> None:
    """What is sent are real batches, and two of them in a row are two numbers."""
    made = template(100)
    first, second = (marked(made, ProducerId(7, 0), number, 5_000_000 + number) for number in (8, 16))
    batch = MemoryRecords(second).next_batch()
    is_valid, records = batch.validate_crc(), list(batch)

    assert list(numbered(first + second)) == [(8, 5_000_008), (16, 5_000_016)]
    assert is_valid
    assert (batch.producer_id, batch.base_sequence, len(records)) == (7, 200, 100)
    assert all(abs(len(record.value) - VALUE_BYTES) < 20 for record in records)


def test_a_load_says_what_it_is() -> None:
    """As the title of a table does."""
    assert str(Load()) == "500 records/s"
    assert str(Load(200_000, 100)) == "200,000 records/s in batches of 100"
    assert Load(200_000, 100).batches_per_s == 2_000
