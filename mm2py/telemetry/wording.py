"""Facts of events in words, for people: "3 partitions, by ann" instead of "partitions: 3, by: ann"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final


Phrase = str | Callable[[object], str]


def seconds(value: object) -> str:
    """Return a duration in at most two units."""
    if not isinstance(value, int | float):
        return str(value)
    if value < 9.95:  # noqa: PLR2004  # below ten seconds tenths are worth reading
        return f"{value:.1f} s".replace(".0 s", " s")
    left, parts = round(value), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        many, left = divmod(left, size)
        if many:
            parts.append(f"{many} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def _amount(value: object) -> str:
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}") if isinstance(value, int | float) else str(value)


def _many(one: str, many: str = "", after: str = "") -> Callable[[object], str]:
    """Return a phrase for a count, or for the names themselves where the event has those."""

    def phrase(value: object) -> str:
        if isinstance(value, tuple | list | frozenset):
            return f"{many or one + 's'} {_listed(value)}{after}" if value else ""
        return f"{_amount(value)} {one if value == 1 else many or one + 's'}{after}"

    return phrase


def _some(one: str, many: str = "") -> Callable[[object], str]:
    """Return a phrase for a count that is only worth reading if it is not zero."""
    phrase = _many(one, many or one)
    return lambda value: phrase(value) if value else ""


def _change(word: str) -> Callable[[object], str]:
    """Return a phrase for what was changed in some way: names, or a count."""

    def phrase(value: object) -> str:
        if isinstance(value, tuple | list | frozenset):
            return f"{word} {_listed(value)}" if value else ""
        return f"{_amount(value)} {word}" if value else ""

    return phrase


def _timed(words: str) -> Callable[[object], str]:
    return lambda value: words.format(seconds(value))


def _if(yes: str = "", no: str = "") -> Callable[[object], str]:
    return lambda value: yes if value else no


def _listed(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, tuple | list | frozenset) else str(value)


#: What each fact is called. Braces take the value; no words are none.
PHRASES: Final[Mapping[str, Phrase]] = {
    "added": _change("added"), "address": "from {}", "after": "{} now", "aliases": "{}", "at_ms": "",
    "attempts": _many("attempt"),
    "away_s": _timed("after {}"), "before": "{} before", "by": "by {}",
    "bytes_per_s": lambda value: f"{_amount(value)} bytes/s", "causes": "{}", "cause": "{}",
    "changed": _change("changed"),
    "checkpoints": _many("checkpoint"), "change": "{}",
    "cluster": "cluster {}", "cluster_id": "with the id {}", "connector": "{}", "connectors": _many("connector"),
    "copy_tasks": _many("copy task"),
    "count": "{} in all", "created": _change("created"), "dead_letters": "kept in {}", "deleted": _change("deleted"),
    "drain_s": _timed("drained in {}"), "due_s": _timed("due after {}"), "ended": "{}", "epoch": "epoch {}",
    "error": "{}", "exception": "\n{}", "flows": _many("flow"), "found": _many("partition", after=" with a position"),
    "fresh": _many("partition", after=" without one"), "goes_on_at": "continues at offset {}", "gone": _change("gone"),
    "group": "group {}", "groups": _many("group"), "heartbeats_only": "heartbeats only for {}",
    "held_s": _timed("for {}"), "interval_s": _timed("every {}"), "is_alone": _if("its copy tasks continue"),
    "is_deleted": _if("it is no longer listed"), "is_drained": _if(no="not everything ended cleanly"),
    "instance": "group.instance.id {}",
    "is_repeated": "",
    "is_running": _if("it continues as it was", "it does not start"), "keys": "{}",
    "keeps_out": _change("no part in the flow because of"),
    "kept": _change("kept"),
    "lag": _many("record", after=" of lag"), "latency_p50_ms": "p50 {} ms", "latency_p99_ms": "p99 {} ms",
    "left": _some("record of the former topic never copied", "records of the former topic never copied"),
    "limits": "{}", "line": "{}", "log_start": "compared from offset {}", "lost": _some("record lost", "records lost"),
    "lost_epochs": _many("lost epoch"), "malformed": _some("malformed"), "master": "at {}", "message": "{}",
    "method": "{}", "moves": _some("moved"), "node": "node {}", "note": "{}", "offset": "offset {}",
    "nodes": _many("node"), "offset_syncs_topic": "topic {}", "owner": "owner {}", "shares": "{}", "tasks": "{} here",
    "open_files_max": "limit {}", "others": _some("more", "more"), "partitions": _many("partition"), "path": "{}",
    "pause_s": _timed("again in {}"), "pid": "process {}", "policy": "{}", "position": "position {}",
    "positions_written": _if(no="not all positions were written"), "principal": "as {}", "problem": "{}",
    "problems": "{}", "reason": "{}", "records": _many("record"),
    "records_per_s": lambda value: f"{_amount(value)} records/s", "remote_topic": "remote topic {}",
    "removed": _change("removed"), "repeated": _change("repeated"), "rest": "its REST interface: {}",
    "retry_in_s": _timed("tried again in {}"), "retry_s": _timed("tried every {}"), "reverted": _change("reverted"),
    "revision": "revision {}", "set": _change("set"), "setting": "{}", "silent_s": _timed("after {}"),
    "since": "since {}",
    "skipped": _change("skipped"), "skipped_from": "from offset {}", "slack_s": "", "stage": "{}",
    "start_s": _timed("started in {}"), "state": "{}", "step": "{}", "stood_still_s": _timed("for {}"),
    "stopped_s": _timed("after {}"),
    "task": lambda value: f"copy task {value}" if isinstance(value, int) else f"{value}",
    "then": "{}", "took_s": _timed("in {}"), "topic": "topic {}", "topics": _many("topic"),
    "topics_at_source": _many("topic", after=" at the source"), "traceback": "\n{}", "transactional_id": "{}",
    "transform": "transform {}", "ui": "UI at {}", "unchanged": _change("unchanged"),
    "unwritten_s": _timed("after {}"), "url": "at {}", "user": "as {}",
    "version": "version {}", "waited_s": _timed("after {}"), "warm_up_s": "", "who": "{}",
    "within_s": _timed("within {}"),
    "worker": "worker {}",
}  # fmt: skip


def worded(facts: Mapping[str, object]) -> str:
    """Return the facts of an event as a line of words; what to try comes last."""
    left = dict(facts)
    hint = left.pop("hint", "")
    said = []
    if "topic" in left and isinstance(left.get("partition"), int):
        said.append(f"{left.pop('topic')}-{left.pop('partition')}")
    said += [_phrase(name, value) for name, value in left.items()]
    line = ", ".join(one for one in said if one).replace(", \n", "\n")
    if not hint:
        return line
    return f"{line}{'' if line.endswith('.') else '.'} What to try: {hint}" if line else f"What to try: {hint}"


def _phrase(name: str, value: object) -> str:
    phrase = PHRASES.get(name)
    if phrase is None:
        return f"{name.replace('_', ' ')}: {_listed(value)}"
    return phrase(value) if callable(phrase) else phrase.format(_listed(value))
