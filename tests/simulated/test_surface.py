"""What users rely on stays as it is unless a change says so."""

from __future__ import annotations

import pytest

from tests.simulated.surface import FOLDER, WHICH, shown_apart


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.timeout(600)
def test_what_users_rely_on_is_as_it_was(which: str) -> None:
    """
    Addresses and answers of REST, metrics, events, and what lies in internal topics.

    `python -m tests.simulated.surface` writes the files again: the difference belongs into the change that brings it.
    """
    assert shown_apart(which).splitlines() == (FOLDER / f"{which}.txt").read_text().splitlines()
