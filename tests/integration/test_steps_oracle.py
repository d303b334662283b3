"""Our steps beside Java's own single message transforms, on the same records: what comes out, and what is refused."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from mm2py.core.transform.matching import TopicTransforms
from mm2py.core.transform.steps import StepChain, StepFailedError, StepRecord
from mm2py.model.transform import FlowTransforms, Predicate, Step
from mm2py.policy.plugins import load_policy
from tests.support.java_programs import java_program


@attrs.frozen
class _Case:
    kind: str
    settings: dict[str, str]
    predicate: str = ""
    predicate_settings: dict[str, str] = attrs.field(factory=dict)
    is_negated: bool = False
    #: The source's topic, and the policy that names the record's topic.
    topic: str = "orders"
    policy: str = "IdentityReplicationPolicy"


_VALUES = (
    None,
    '{"iban":"DE1","sum":12,"rate":1.5,"open":true,"tags":["a"],"who":{"n":1},"gone":null}',
    '{"other":"x"}',
    "{}",
    '{"iban":-7,"sum":"12","id":9007199254740993}',
    '"text"',
    "[1,2]",
    "12",
)
_KEYS = (None, '{"id":1,"iban":"K"}')
_HEADERS: tuple[list[tuple[str, str]], ...] = ([], [("debug", "yes"), ("trace", "1"), ("debug", "no")])

_CASES = (
    _Case("MaskField$Value", {"fields": "iban"}),
    _Case("MaskField$Value", {"fields": "iban,sum,rate,open,tags,who,gone,missing"}),
    _Case("MaskField$Value", {"fields": "iban", "replacement": "***"}),
    _Case("MaskField$Value", {"fields": "sum,rate", "replacement": "99"}),
    _Case("MaskField$Value", {"fields": "open", "replacement": "99"}),
    _Case("MaskField$Value", {"fields": "tags", "replacement": "99"}),
    _Case("MaskField$Key", {"fields": "iban,id"}),
    _Case("ReplaceField$Value", {"exclude": "iban,who"}),
    _Case("ReplaceField$Value", {"include": "iban,sum"}),
    _Case("ReplaceField$Value", {"include": "iban,sum", "exclude": "sum"}),
    _Case("ReplaceField$Value", {"renames": "iban:account,sum:total"}),
    _Case("ReplaceField$Key", {"renames": "id:number"}),
    _Case("ValueToKey", {"fields": "iban"}),
    _Case("ValueToKey", {"fields": "sum,missing"}),
    _Case("InsertField$Value", {"topic.field": "t", "partition.field": "p!", "timestamp.field": "ts?"}),
    _Case("InsertField$Value", {"static.field": "from", "static.value": "A"}),
    _Case("InsertField$Key", {"static.field": "from", "static.value": "A"}),
    _Case("InsertHeader", {"header": "origin", "value.literal": "west one"}),
    _Case("DropHeaders", {"headers": "debug"}),
    _Case("RegexRouter", {"regex": "(ord)(.*)", "replacement": "$2-$1"}),
    _Case("RegexRouter", {"regex": "rd", "replacement": "x"}),
    _Case("RegexRouter", {"regex": "(?<head>.)(.*)", "replacement": "${head}\\$$23"}),
    _Case("Filter", {}, "RecordIsTombstone"),
    _Case("Filter", {}, "RecordIsTombstone", {}, is_negated=True),
    _Case("Filter", {}, "HasHeaderKey", {"name": "debug"}),
    _Case("Filter", {}, "TopicNameMatches", {"pattern": "ord.*"}),
    _Case("Filter", {}, "TopicNameMatches", {"pattern": "ord"}),
    *(
        attrs.evolve(case, topic=topic, policy="DefaultReplicationPolicy")
        for topic in ("orders", "keep.orders", "plain.audit-1")
        for case in (
            _Case("Filter", {}, "TopicNameMatches", {"pattern": r"[^.]+\.keep.*"}, is_negated=True),
            _Case("Filter", {}, "TopicNameMatches", {"pattern": r".*\.audit.*"}),
            _Case("Filter", {}, "TopicNameMatches", {"pattern": "orders"}),
            _Case("RegexRouter", {"regex": r"A\.(.*)", "replacement": "$1"}),
            _Case("RegexRouter", {"regex": "(.*)", "replacement": "dc2.$1"}),
            _Case("RegexRouter", {"regex": r"(.*)\.(.*)", "replacement": "$1-$2"}),
            _Case("InsertField$Value", {"topic.field": "t"}),
        )
    ),
)


def _questions() -> list[tuple[_Case, dict[str, Any]]]:
    records = itertools.product(_CASES, _KEYS, _VALUES, _HEADERS)
    return [
        (
            case,
            {
                "kind": case.kind,
                "settings": case.settings,
                "source": "A",
                "policy": case.policy,
                "topic": case.topic,
                "partition": 3,
                "timestamp": 1_700_000_000_123,
                "key": key,
                "value": value,
                "headers": headers,
                **(
                    {
                        "predicate": case.predicate,
                        "predicateSettings": case.predicate_settings,
                        "negate": case.is_negated,
                    }
                    if case.predicate
                    else {}
                ),
            },
        )
        for case, key, value, headers in records
    ]


def _ours(case: _Case, question: dict[str, Any]) -> Any:
    defaults = {"replacement": "", "exclude": "", "include": "", "renames": ""}
    predicate = Predicate(case.predicate, case.predicate_settings) if case.predicate else None
    step = Step("one", case.kind, {**defaults, **case.settings}, predicate, case.is_negated)
    policy = load_policy(f"org.apache.kafka.connect.mirror.{case.policy}", source_alias="A")
    transforms = TopicTransforms(FlowTransforms(steps=(step,)), partial(policy.format_remote_topic, "A"))
    record = StepRecord(
        transforms.name_by_policy(case.topic),
        question["partition"],
        17,
        question["timestamp"],
        _bytes(question["key"]),
        _bytes(question["value"]),
        tuple((name, value.encode()) for name, value in question["headers"]),
    )
    try:
        if StepChain((step,)).apply(record):
            return None
    except StepFailedError as failed:
        return {"error": str(failed)}
    assert record.topic == transforms.name_remote(case.topic)
    return {
        "topic": record.topic,
        "key": _parsed(record.key),
        "value": _parsed(record.value),
        "headers": [[name, (value or b"").decode()] for name, value in record.headers],
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _parsed(text: str | bytes | None) -> Any:
    return None if text is None else json.loads(text)


async def test_steps_do_what_java_s_do(tmp_path: Path) -> None:
    """For every kind of step and of record: the same record and topic, dropped alike, refused in the same words.

    The policy, Java's there and ours here, names the record's topic before the step.
    """
    questions = _questions()
    file = tmp_path / "questions"
    file.write_text("".join(json.dumps(question) + "\n" for _, question in questions))
    answers = [json.loads(line) for line in await java_program("Steps").ask(str(file))]

    different = []
    for (case, question), answer in zip(questions, answers, strict=True):
        wanted = answer
        if answer is not None and "error" not in answer:
            wanted = {**answer, "key": _parsed(answer["key"]), "value": _parsed(answer["value"])}
        if (ours := _ours(case, question)) != wanted:
            different.append((case, question["key"], question["value"], ours, wanted))

    assert not different, "\n".join(map(repr, different[:40]))
