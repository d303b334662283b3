"""Mirus's offsets: the lines of its offset tool (its own tests' lines), and what its workers store."""

from __future__ import annotations

import re

import pytest

from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.mirus_offset import LineFormat, MirusOffset, format_of, read_line, read_record, write_line


_LONG = "sfdc.test.logbus__prd.ajna_test__logs.coreapp.sp1.logbus"
#: OffsetSerDeTest's, and a name that CSV has to quote.
LINES = [
    (
        MirusOffset("connector-id", TopicPartition("topic", 1), 123),
        "connector-id,topic,1,123",
        '{"connectorId":"connector-id","topic":"topic","partition":1,"offset":123}',
    ),
    (
        MirusOffset("connector-id", TopicPartition("topic", 2), None),
        "connector-id,topic,2,",
        '{"connectorId":"connector-id","topic":"topic","partition":2,"offset":null}',
    ),
    (
        MirusOffset("prd-logbus-source", TopicPartition(_LONG, 2), 345),
        f"prd-logbus-source,{_LONG},2,345",
        f'{{"connectorId":"prd-logbus-source","topic":"{_LONG}","partition":2,"offset":345}}',
    ),
    (
        MirusOffset('a "b", c', TopicPartition("t", 0), 0),
        '"a ""b"", c",t,0,0',
        '{"connectorId":"a \\"b\\", c","topic":"t","partition":0,"offset":0}',
    ),
]


@pytest.mark.parametrize(("one", "csv", "json"), LINES)
def test_lines_are_those_of_mirus(one: MirusOffset, csv: str, json: str) -> None:
    """Each offset is written as Mirus writes it, and read back."""
    assert (write_line(one, LineFormat.CSV), write_line(one, LineFormat.JSON)) == (csv, json)
    assert (read_line(csv, LineFormat.CSV), read_line(json, LineFormat.JSON)) == (one, one)
    assert (format_of(f"\n{csv}\n"), format_of(f" {json}")) == (LineFormat.CSV, LineFormat.JSON)


@pytest.mark.parametrize(
    ("form", "line", "problem"),
    [
        (LineFormat.CSV, "a,t,0", "found 3 fields"),
        (LineFormat.CSV, "a,t,0,1,2", "found 5 fields"),
        (LineFormat.CSV, 'a,"t,0,1', "not valid CSV"),
        (LineFormat.CSV, "connectorId,topic,partition,offset", "offset: a whole number is expected"),
        (LineFormat.CSV, "a,t,0,-1", "offset: a whole number is expected, found '-1'"),
        (LineFormat.CSV, "a,t,0,1.5", "offset: a whole number"),
        (LineFormat.CSV, "a,t,0," + "9" * 30, "offset: a whole number"),
        (LineFormat.CSV, f"a,t,{2**31},1", "partition: 2147483648 is not between"),
        (LineFormat.CSV, "a,,0,1", "topic is empty"),
        (LineFormat.CSV, ",t,0,1", "connectorId is empty"),
        (LineFormat.JSON, "[1]", "an object with connectorId"),
        (LineFormat.JSON, '{"connectorId":"a"', "not valid JSON"),
        (LineFormat.JSON, '{"connectorId":"a","topic":"t","partition":0}', "an object with connectorId"),
        (LineFormat.JSON, '{"connectorId":"a","topic":"t","partition":"0","offset":1}', "partition: an integer"),
        (LineFormat.JSON, '{"connectorId":"a","topic":"t","partition":0,"offset":true}', "offset: an integer"),
        (LineFormat.JSON, '{"connectorId":"a","topic":"t","partition":0,"offset":1,"x":2}', "'x' is not known"),
        (LineFormat.JSON, '{"connectorId":5,"topic":"t","partition":0,"offset":1}', "connectorId: a string"),
    ],
)
def test_a_line_that_is_wrong_says_why(form: LineFormat, line: str, problem: str) -> None:
    """Whatever stands there becomes a ValueError that names the member."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        read_line(line, form)


@pytest.mark.parametrize(
    ("key", "value", "offset"),
    [
        (b'["mirus",{"topic":"t","partition":3}]', b'{"offset":124}', 124),
        (b'["mirus", {"partition": 3, "topic": "t"}]', b'{"offset":0}', 0),
        (b'["mirus",{"topic":"t","partition":3}]', b'{"offset":null}', None),
        (b'["mirus",{"topic":"t","partition":3}]', None, None),
    ],
)
def test_a_stored_offset_is_the_next_one(key: bytes, value: bytes | None, offset: int | None) -> None:
    """The value is read as it is, unlike MirrorMaker's; a tombstone and Mirus's own null mean the same."""
    assert read_record(key, value) == MirusOffset("mirus", TopicPartition("t", 3), offset)


@pytest.mark.parametrize(
    ("key", "value", "is_known"),
    [
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]', b'{"offset":1}', False),
        (b'["file-source",{"filename":"x"}]', b'{"position":1}', False),
        (b"{}", b"{}", False),
        (b'["mirus",{"topic":"t","partition":3}]', b"{}", True),
        (b'["mirus",{"topic":"t","partition":3}]', b'{"offset":-1}', True),
        (b'["mirus",{"topic":"t","partition":3}]', b"\xff", True),
        (b'["mirus",{"topic":"t","partition":-3}]', b'{"offset":1}', True),
        (None, b"x", True),
    ],
)
def test_other_records_of_the_topic(key: bytes | None, value: bytes, is_known: bool) -> None:
    """Those of other connectors are none; damaged ones are reported, and nothing is raised."""
    found = read_record(key, value)

    assert isinstance(found, UnreadableRecord) if is_known else found is None
