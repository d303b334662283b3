"""What is decompressed has a limit: anyone may write batches of which no memory holds the records."""

from __future__ import annotations

import cramjam
import pytest

from mm2py.wire.batches import codecs
from mm2py.wire.batches.codecs import decompressed
from tests.support.batches import GZIP, LZ4, ZSTD


_LIMIT = 1024 * 1024
_COMPRESSORS = {GZIP: cramjam.gzip.compress, LZ4: cramjam.lz4.compress, ZSTD: cramjam.zstd.compress}


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "_MOST_BYTES", _LIMIT)


@pytest.mark.parametrize("codec", _COMPRESSORS)
def test_more_than_the_limit_is_refused(codec: int) -> None:
    """It is refused without being decompressed to its end; up to the limit nothing is."""
    largest, larger = (bytes(_COMPRESSORS[codec](bytes(size))) for size in (_LIMIT, _LIMIT + 1))

    assert decompressed(codec, largest) == bytes(_LIMIT)
    with pytest.raises(ValueError, match=f"more than {_LIMIT} bytes without compression"):
        decompressed(codec, larger)


@pytest.mark.parametrize("codec", _COMPRESSORS)
def test_a_large_batch_may_hold_many_times_its_size(codec: int) -> None:
    """The limit is for what no producer puts into one batch, not for data that compresses well."""
    content = b"".join(b"%08d" % number for number in range(400_000))
    body = bytes(_COMPRESSORS[codec](content))

    assert len(content) > _LIMIT
    assert decompressed(codec, body) == content


@pytest.mark.parametrize("codec", _COMPRESSORS)
def test_damage_is_not_called_too_large(codec: int) -> None:
    """What is no such format keeps the codec's own words."""
    body = bytes(_COMPRESSORS[codec](bytes(_LIMIT)))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the codecs have no class in common
        decompressed(codec, b"\x00" * 40 + body)

    assert "without compression" not in str(caught.value)
