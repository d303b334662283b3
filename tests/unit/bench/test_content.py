"""The records' text has the asked size and is the same in every run."""

import itertools
import json

import pytest

from bench import content


@pytest.mark.parametrize("size", [184, 200, 1024, 100 * 1024])
def test_values_are_json_of_about_the_asked_size(size: int) -> None:
    """Every value parses, and its length is within a twentieth of what was asked."""
    values = [value for _, value in itertools.islice(content.records(value_bytes=size, seed=5), 20)]

    assert all(json.loads(value)["event"] in content.KINDS for value in values)
    assert all(abs(len(value) - size) <= size / 20 for value in values)


def test_same_seed_makes_the_same_records() -> None:
    """Two runs mirror the same bytes."""
    first, second = (list(itertools.islice(content.records(value_bytes=200, seed=5), 50)) for _ in range(2))

    assert first == second
