"""The shapes of work that are measured: how big the records are, how they are batched, compressed and spread."""

from __future__ import annotations

import enum

import attrs


class Codec(enum.Enum):
    """A compression codec of record batches, by the number that stands in their attributes."""

    NONE = 0
    LZ4 = 3
    ZSTD = 4

    @property
    def setting(self) -> str:
        """As producers' ``compression.type`` spells it."""
        return self.name.lower()


@attrs.frozen
class Shape:
    """
    One kind of source topic.

    A batch takes records until the next one would take it over `batch_bytes` uncompressed; a batch has at least one.
    `share` says how many records this shape gets for each one that the first shape gets, so that all of them take
    about as long.
    """

    name: str
    what: str
    value_bytes: int
    partitions: int
    share: float
    codec: Codec = Codec.NONE
    batch_bytes: int = 64 * 1024
    #: Connect's transforms that each record goes through: the flow's keys, in the way that both mirrors read them.
    transforms: tuple[tuple[str, str], ...] = ()
    #: What mm2py is given in their stead, where it has another way to say the same.
    statement: tuple[tuple[str, str], ...] = ()
    #: Configs that the topic has while it is loaded.
    configs: tuple[tuple[str, str], ...] = ()
    #: Whether the source compacts it before it is mirrored: of two records with the same key, the second is left.
    is_compacted: bool = False
    #: Whether it is copied without being asked for.
    is_usual: bool = True

    def records(self, of_first_shape: int) -> int:
        """How many records this shape gets when the first one gets so many."""
        return round(of_first_shape * self.share)


#: The one of Connect's transforms that changes each record and that Java MirrorMaker can run: it hands records to
#: them as bytes, which those that look into values refuse.
_INSERT_HEADER = (
    ("transforms", "mark"),
    ("transforms.mark.type", "org.apache.kafka.connect.transforms.InsertHeader"),
    ("transforms.mark.header", "mirrored-by"),
    ("transforms.mark.value.literal", "mirror"),
)

_MARKED = "array_append(headers, named_struct('key', 'mirrored-by', 'value', CAST('mirror' AS BINARY)))"
_HEADER_BY_SQL = (("transform.sql", f"SELECT * EXCEPT (headers), {_MARKED} AS headers FROM records"),)

#: What is loaded in less than a minute is one segment, and a record a minute later begins the next one.
SEGMENT_MS = 60_000

SHAPES = (
    Shape("json", "200 B JSON, 64 KiB batches", 200, 8, 1.0),
    Shape("json-lz4", "200 B JSON, 64 KiB batches, lz4", 200, 8, 1.0, Codec.LZ4),
    Shape("json-zstd", "200 B JSON, 64 KiB batches, zstd", 200, 8, 1.0, Codec.ZSTD),
    Shape("single", "200 B JSON, one-record batches", 200, 8, 0.3, batch_bytes=0),
    Shape("wide", "1 KiB JSON, 40 partitions", 1024, 40, 0.5),
    Shape("large", "100 KiB JSON", 100 * 1024, 8, 0.005),
    Shape(
        "append-time",
        "200 B JSON, LogAppendTime",
        200,
        8,
        0.5,
        configs=(("message.timestamp.type", "LogAppendTime"),),
        is_usual=False,
    ),
    Shape(
        "compacted",
        "200 B JSON, every other record compacted away",
        200,
        8,
        1.0,
        configs=(("segment.ms", str(SEGMENT_MS)),),
        is_compacted=True,
        is_usual=False,
    ),
    Shape("header", "200 B JSON, InsertHeader", 200, 8, 0.5, transforms=_INSERT_HEADER),
    Shape("sql", "200 B JSON, that by SQL", 200, 8, 0.5, transforms=_INSERT_HEADER, statement=_HEADER_BY_SQL),
)
SHAPES_BY_NAME = {shape.name: shape for shape in SHAPES}
#: Those whose records arrive as they are, but for the ones that have to be asked for.
COPIED = tuple(shape.name for shape in SHAPES if shape.is_usual and not shape.transforms)
