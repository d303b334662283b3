"""What a transform gave back is checked before it is written."""

from __future__ import annotations

import pytest

from mm2py.pipeline.records.row import Chunk
from mm2py.pipeline.records.rows import first_unsound


def chunk(*offsets: int | None, stray: tuple[int, str] | None = None) -> Chunk:
    nothing = [None] * len(offsets)
    return Chunk(offsets, [0] * len(offsets), nothing, nothing, [()] * len(offsets), stray)


@pytest.mark.parametrize(
    ("given", "sound"),
    [
        pytest.param(chunk(), 0, id="no rows"),
        pytest.param(chunk(10, 11, 19), 3, id="in order, with gaps"),
        pytest.param(chunk(9, 10), 0, id="from before the stretch"),
        pytest.param(chunk(10, 20), 1, id="from behind the stretch"),
        pytest.param(chunk(10, 12, 11, 13), 2, id="out of order"),
        pytest.param(chunk(10, 10), 1, id="twice"),
        pytest.param(chunk(10, None, 12), 1, id="no offset"),
        pytest.param(chunk(10, 11, 12, stray=(1, "topic")), 1, id="of another topic"),
        pytest.param(chunk(10, 9, 12, stray=(2, "topic")), 1, id="out of order first"),
    ],
)
def test_rows_until_the_first_that_will_not_do(given: Chunk, sound: int) -> None:
    """Rows are taken up to the first that is not next in the stretch or belongs elsewhere."""
    assert first_unsound(given, after=9, before=20) == sound
