"""
Offsets as Mirus, Salesforce's mirror on Kafka Connect, keeps and prints them.

Mirus stores the *next* offset to read, which is our position, in the workers' ``offset.storage.topic``. Its offset tool
prints a line for each topic-partition, without a header: CSV or JSON, with the connector's name first. An offset of
null means that there is none: the partition starts where the settings say. Files go back and forth between both tools.
"""

from __future__ import annotations

import csv
import enum
import io
import json

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import INT32_MOST, UnreadableRecord, read_json, topic_name, whole, words


_MEMBERS = ("connectorId", "topic", "partition", "offset")


class LineFormat(enum.Enum):
    """The form of a line."""

    CSV = "csv"
    JSON = "json"


@attrs.frozen
class MirusOffset:
    """The next offset that *connector* reads of a topic-partition; None if there is none."""

    connector: str
    source: TopicPartition
    offset: int | None


def format_of(text: str) -> LineFormat:
    """Return the format of a file by how its first line begins."""
    return LineFormat.JSON if text.lstrip().startswith("{") else LineFormat.CSV


def write_line(one: MirusOffset, form: LineFormat) -> str:
    """Return the line for *one*, as Mirus prints it, without its end."""
    values = (one.connector, one.source.topic, one.source.partition, one.offset)
    if form is LineFormat.JSON:
        return json.dumps(dict(zip(_MEMBERS, values, strict=True)), ensure_ascii=False, separators=(",", ":"))
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def read_line(text: str, form: LineFormat) -> MirusOffset:
    """Parse a line. Raise ValueError that says what is wrong with it."""
    return _read_json(text) if form is LineFormat.JSON else _read_csv(text)


def _read_csv(text: str) -> MirusOffset:
    try:
        (fields,) = csv.reader([text], strict=True)
    except csv.Error as error:
        raise ValueError(f"it is not valid CSV: {error}") from None
    if len(fields) != len(_MEMBERS):
        raise ValueError(f"{', '.join(_MEMBERS)} are expected, found {len(fields)} fields")
    connector, topic, partition, offset = fields
    next_offset = _digits("offset", offset) if offset.strip() else None
    return _checked(connector, topic, _digits("partition", partition), next_offset)


def _digits(name: str, text: str) -> int:
    text = text.strip()
    if not text.isascii() or not text.isdigit() or len(text) > len(str(2**63)):
        raise ValueError(f"{name}: a whole number is expected, found {text!r}")
    return int(text)


def _read_json(text: str) -> MirusOffset:
    match read_json(text.encode()):
        case {"connectorId": connector, "topic": topic, "partition": partition, "offset": offset, **others}:
            if others:
                raise ValueError(f"{next(iter(others))!r} is not known")
            return _checked(connector, topic, partition, offset)
        case _:
            raise ValueError(f"an object with {', '.join(_MEMBERS)} is expected")


def _checked(connector: object, topic: object, partition: object, offset: object) -> MirusOffset:
    def named(name: str, value: object) -> str:
        text = words(value, name)
        if not text:
            raise ValueError(f"{name} is empty")
        return text

    source = TopicPartition(topic_name(named("topic", topic)), whole(partition, "partition", most=INT32_MOST))
    return MirusOffset(named("connectorId", connector), source, None if offset is None else whole(offset, "offset"))


def read_record(key: bytes | None, value: bytes | None) -> MirusOffset | UnreadableRecord | None:
    """Parse a record of the offset topic, where Connect writes JSON without schemas; None if it is another connector's,
    which names its partitions differently. A tombstone has no offset.
    """
    try:
        match read_json(key or b""):
            case [str(connector), {"topic": topic, "partition": partition, **others}] if not others:
                offset = _stored(None if value is None else read_json(value))
                return _checked(connector, topic, partition, offset)
            case _:
                return None
    except ValueError as error:
        return UnreadableRecord(str(error))


def _stored(value: object) -> object:
    match value:
        case None:
            return None
        case {"offset": offset}:
            return offset
        case _:
            raise ValueError("it has no offset")
