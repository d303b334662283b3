"""Record sets as Hypothesis draws them, for what compiled code and Python must do alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import strategies as st

from mm2py.wire.batches import native
from tests.support.batches import CODECS, LOG_APPEND_TIME, LZ4, NONE, START_MS, Content, build_batch, control_batch


Bytes = st.one_of(st.none(), st.binary(max_size=40))
Headers = st.lists(st.tuples(st.text(st.characters(max_codepoint=127), max_size=4), Bytes), max_size=2).map(tuple)


@st.composite
def record_sets(draw: st.DrawFn, headers: st.SearchStrategy[tuple[object, ...]] = Headers) -> bytes:
    """Return batches as logs have them: small, compacted, stamped, transactional, compressed; gaps between them."""
    parts, offset = [], draw(st.integers(0, 1 << 40))
    codecs = draw(st.sampled_from(((NONE, NONE, NONE, LZ4), *((it,) for it in CODECS))))
    for _ in range(draw(st.integers(1, 8))):
        content = st.builds(Content, st.just(0), st.integers(0, START_MS * 2), Bytes, Bytes, headers)
        contents = draw(st.lists(content, min_size=1, max_size=5))
        gaps = draw(st.lists(st.integers(1, 3), min_size=len(contents), max_size=len(contents)))
        deltas = [sum(gaps[: n + 1]) - 1 for n in range(len(contents))]
        records = [
            Content(delta, it.timestamp, it.key, it.value, it.headers)
            for delta, it in zip(deltas, contents, strict=True)
        ]
        last = deltas[-1] + draw(st.integers(0, 2))
        stamped = {"attributes": LOG_APPEND_TIME, "max_timestamp": START_MS} if draw(st.booleans()) else {}
        codec = draw(st.sampled_from(codecs))
        parts.append(build_batch(records, base_offset=offset, last_offset_delta=last, codec=codec, **stamped))
        offset += last + 1 + draw(st.integers(0, 2))
        if draw(st.integers(0, 9)) == 0:
            parts.append(control_batch(offset, 1, commits=True))
            offset += 1
    return b"".join(parts)


@contextmanager
def in_python() -> Iterator[None]:
    """Do without compiled code."""
    before, native._library = native.library(), None
    try:
        yield
    finally:
        native._library = before
