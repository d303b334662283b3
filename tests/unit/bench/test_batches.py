"""Prebuilt batches are what an idempotent producer would have sent."""

import functools
import itertools
import struct

import pytest
from aiokafka.record._crecords import MemoryRecords
from crc32c import crc32c

from bench.batches import ProducerId, Template, batches_of, build_templates, closing_batch, left_of_pairs, walk
from bench.shapes import SHAPES, Codec, Shape


SMALL = Shape("small", "", 200, 1, 1.0, Codec.LZ4, 2_000)
PRODUCER = ProducerId(77, 3)


#: Thousands of batches, of which most tests look at one.
templates_of = functools.cache(build_templates)


@pytest.fixture(name="template")
def one_template() -> Template:
    return templates_of(SMALL)[0]


def test_stamped_batch_passes_its_own_checksum(template: Template) -> None:
    """A stamped batch is whole: its CRC32C covers what was stamped."""
    batch = template.stamped(PRODUCER, 40, 1_700_000_000_000)

    assert struct.unpack_from(">I", batch, 17)[0] == crc32c(batch[21:])


def test_stamped_batch_carries_producer_sequence_and_time(template: Template) -> None:
    """Producer id, epoch and sequence are the given ones, and records are a fraction of a millisecond apart."""
    batch = template.stamped(PRODUCER, 40, 1_700_000_000_000)

    assert struct.unpack_from(">qhi", batch, 43) == (77, 3, 40)
    timestamps = [record.timestamp for record in MemoryRecords(batch).next_batch()]
    assert timestamps[0] == 1_700_000_000_000
    assert timestamps[-1] == 1_700_000_000_000 + template.span_ms


def test_stamping_leaves_the_template_alone(template: Template) -> None:
    """The same template can be sent many times."""
    first = template.stamped(PRODUCER, 0, 1_700_000_000_000)
    template.stamped(PRODUCER, 9, 1_800_000_000_000)

    assert template.stamped(PRODUCER, 0, 1_700_000_000_000) == first


@pytest.mark.parametrize("shape", SHAPES[:4], ids=lambda shape: shape.name)
def test_batches_are_as_large_as_the_shape_says(shape: Shape) -> None:
    """All batches of a shape hold equally many records, and fill what the shape allows without passing it."""
    templates = templates_of(shape)
    counts = {template.records for template in templates}
    longest = max(len(template.data) for template in templates)

    assert len(counts) == 1
    assert counts == {1} if shape.batch_bytes == 0 else longest <= shape.batch_bytes


@pytest.mark.parametrize(("name", "least", "most"), [("json-lz4", 2.5, 5.0), ("json-zstd", 3.0, 6.0)])
def test_content_compresses_like_application_data(name: str, least: float, most: float) -> None:
    """Records are neither noise nor constant: codecs find in them what they find in real JSON."""
    [shape] = [one for one in SHAPES if one.name == name]
    template = templates_of(shape)[0]
    ratio = template.records * shape.value_bytes / len(template.data)

    assert least < ratio < most


def test_one_of_two_records_is_for_the_cleaner() -> None:
    """In a compacted topic a record has its key from the one before, and no two batches have a key in common."""
    shape = Shape("", "", 200, 1, 1.0, batch_bytes=1_200, is_compacted=True)
    batches = list(itertools.islice(batches_of(shape), 3))
    keys = [[record.key for record in MemoryRecords(batch.data).next_batch()] for batch in batches]

    assert [len(some) for some in keys] == [batch.records for batch in batches] == [5, 5, 5]
    assert {len(set(some)) for some in keys} == {3} == {left_of_pairs(5)}
    assert all(some[::2][1:] != some[:-1:2] and some[0] == some[1] for some in keys)
    assert len(set(itertools.chain(*keys))) == 9


def test_walking_counts_whole_batches(template: Template) -> None:
    """Records and bytes by the headers; the batch that a fetch cut off is not counted."""
    first, second = template.stamped(PRODUCER, 0, 1_700_000_000_000), closing_batch(1_700_000_000_000)
    second = struct.pack(">q", 40) + second[8:]

    assert list(walk(first + second + first[:-1])) == [
        (template.records, template.records, len(first)),
        (41, 1, len(second)),
    ]
