"""Our TimestampRouter beside Java's own: the same names for many patterns and timestamps, the same patterns refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from mm2py.core.steps import StepChain, StepRecord
from mm2py.model.date_pattern import DAY_MS, DatePatternError
from mm2py.model.transform import Step
from tests.support.java_programs import java_program


_PATTERNS = (
    "yyyyMMdd", "yyyy-MM-dd", "yy", "y", "yyy", "yyyyyy", "YYYY", "YY", "Y", "YYYY-ww", "YYYY.w", "M", "MM", "MMM",
    "MMMM", "MMMMM", "L", "LL", "LLL", "LLLL", "d", "dd", "ddd", "D", "DDD", "DDDD", "E", "EEE", "EEEE", "u", "uu",
    "F", "FF", "w", "www", "W", "WW", "a", "aaaa", "H", "HH", "k", "kk", "K", "KK", "h", "hh", "m", "mm", "s", "ss",
    "S", "SS", "SSS", "SSSSS", "G", "GGGG", "z", "zzz", "zzzz", "Z", "ZZZZ", "X", "XX", "XXX", "yyyyMMddHH",
    "yyyyMMdd'T'HHmm", "yyyy'year'", "''yyyy''", "'it''s 'yyyy", "'o''clock'", "''", "'''yy'''", "yyyy_MM.dd-HH",
    "'plain'", "2026", "", "yyyy/MM/dd HH:mm:ss,SSS", "'W'w'D'u", "EEEMMMddHHmmsszyyyy", "YYYY-'W'ww-u", "é yyyy",
    "y" * 12,
)  # fmt: skip
_REFUSED = ("b", "yyyyb", "T", "yyyy-MM-ddTHH", "'open", "yyyy'", "XXXX", "'a'''b", "A", "I", "yyyy'T", "'''")


def _timestamps() -> list[int]:
    chance = random.Random(17)
    edges = [0, 1, 999, 1_000, 86_399_999, 951_782_400_000, 1_709_164_800_000, 4_107_542_400_000, 253_402_300_799_999,
             253_402_300_800_000, 2**53, 2**62]  # fmt: skip
    # Around the ends of sixty years, day by day and to the millisecond.
    ends = [
        year_end + day * DAY_MS + ms
        for year_end in (int(365.2425 * DAY_MS * year) for year in range(60))
        for day in range(-9, 10)
        for ms in (0, -1)
    ]
    some = [chance.randrange(0, 4_200_000_000_000) for _ in range(1_000)]
    return [at for at in (*edges, *ends, *some) if at >= 0]


def _ours(topic_format: str, pattern: str, topic: str, timestamps: list[int]) -> Any:
    settings = {"topic.format": topic_format, "timestamp.format": pattern}
    try:
        chain = StepChain((Step("route", "TimestampRouter", settings),))
    except DatePatternError:
        return "error"
    names = []
    for at in timestamps:
        record = StepRecord(topic, 0, 0, at, None, None, ())
        assert not chain.apply(record)
        names.append(record.topic)
    return names


async def test_topics_are_named_as_java_names_them(tmp_path: Path) -> None:
    """Every pattern makes the name that Java makes, of every timestamp; what Java refuses is refused."""
    timestamps = _timestamps()
    questions = [("${topic}-${timestamp}", pattern, "orders", timestamps) for pattern in (*_PATTERNS, *_REFUSED)]
    questions += [
        (form, "yyyyMMdd", topic, timestamps[:20])
        for form in (
            "${topic}-${timestamp}",
            "${timestamp}",
            "x",
            "${topic}${topic}.${timestamp}${timestamp}",
            "$topic",
        )
        for topic in ("orders", "a.b_c", "${timestamp}", "$1")
    ]
    file = tmp_path / "questions"
    file.write_text("".join(json.dumps([form, pattern, topic, *at]) + "\n" for form, pattern, topic, at in questions))
    answers = [json.loads(line) for line in await java_program("DateNames").ask(str(file))]

    different = []
    for question, answer in zip(questions, answers, strict=True):
        wanted = "error" if isinstance(answer, dict) else answer
        if (ours := _ours(*question)) != wanted:
            some = [] if "error" in (wanted, ours) else [*zip(question[3], ours, wanted, strict=True)]
            different.append((*question[:3], wanted if not some else [it for it in some if it[1] != it[2]][:3]))

    assert not different, "\n".join(map(repr, different[:40]))
    assert sum(isinstance(answer, dict) for answer in answers) == len(_REFUSED)
