"""Connect's steps one behind the other; what each does is compared with Java's in the integration tests."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.transform.steps import StepChain, StepFailedError, StepRecord
from mm2py.model.transform import Predicate, Step


_MASK = Step("mask", "MaskField$Value", {"fields": "iban", "replacement": ""})
_TOMBSTONE = Predicate("RecordIsTombstone")


def _record(value: bytes | None, **facts: object) -> StepRecord:
    return attrs.evolve(StepRecord("orders", 0, 7, 1_000, b"k", value, (("a", b"1"),)), **facts)


def test_a_dropped_record_goes_no_further() -> None:
    """The step that drops a record is named, and those behind it do not see it."""
    chain = StepChain((Step("gone", "Filter", {}, _TOMBSTONE), _MASK))

    assert chain.apply(_record(None)) == "gone"


def test_each_step_sees_what_the_one_before_made() -> None:
    """A masked field is copied to the key masked; predicates look at the topic as routers left it."""
    router = Step("route", "RegexRouter", {"regex": "orders", "replacement": "sales"})
    on_sales = Predicate("TopicNameMatches", {"pattern": "sales"})
    chain = StepChain((_MASK, router, attrs.evolve(Step("key", "ValueToKey", {"fields": "iban"}), predicate=on_sales)))
    record = _record(b'{"iban":"DE1","n":1}')

    assert chain.apply(record) == ""
    assert (record.topic, record.key, record.value) == ("sales", b'{"iban":""}', b'{"iban":"","n":1}')


@pytest.mark.parametrize("value", [b"not json", b"\xff", b"NaN", b"[1]", b'"x"', b"", None])
def test_what_is_no_object_is_refused_with_step_and_column(value: bytes | None) -> None:
    """A value that has no fields stops the chain, which names the step and the column."""
    with pytest.raises(StepFailedError) as failed:
        StepChain((_MASK,)).apply(_record(value))

    assert (failed.value.stage, failed.value.column) == ("transforms.mask", "value")


@pytest.mark.parametrize("half", [b"\\ud83d", "\ud83d".encode(errors="surrogatepass")])
def test_half_a_pair_of_surrogates_leaves_a_value_utf_8(half: bytes) -> None:
    """JavaScript writes such an escape if it cuts a text in the middle of a letter; a consumer must still read it."""
    record = _record(b'{"iban":"DE1","name":"Zo\xc3\xab' + half + b'"}')
    StepChain((_MASK,)).apply(record)

    assert record.value == rb'{"iban":"","name":"Zo\u00eb\ud83d"}'


def test_a_number_that_json_cannot_hold_is_refused() -> None:
    """What is read as infinite cannot be written again: a consumer could not parse the value."""
    with pytest.raises(StepFailedError, match="a number of the value is too large") as failed:
        StepChain((_MASK,)).apply(_record(b'{"iban":"DE1","n":1e999}'))

    assert (failed.value.stage, failed.value.column) == ("transforms.mask", "value")


def test_numbers_and_letters_survive() -> None:
    """What no step touches is the same JSON: long integers, letters beyond ASCII, nested values."""
    record = _record('{"iban":1,"id":9007199254740993,"name":"Zoë","deep":{"a":[1.5,null,true]}}'.encode())
    StepChain((_MASK,)).apply(record)

    assert record.value == '{"iban":0,"id":9007199254740993,"name":"Zoë","deep":{"a":[1.5,null,true]}}'.encode()
