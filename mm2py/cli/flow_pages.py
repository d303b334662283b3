"""The daemon's answers about a node and its flows, as tables. No requests and no output here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mm2py.cli.nodes import nodes_sheet
from mm2py.cli.sheets import Facts, Note, Part, Sheet, at_least, count, millis, rate, size, span, text


Json = Mapping[str, Any]

# A node.


def status_page(status: Json) -> list[Part]:
    """Show a node, its flows, and their problems."""
    flows: Sequence[Json] = status["flows"]
    facts = Facts((
        ("node", text(node_name(status))),
        ("version", text(status["version"])),
        ("state", _fares(status)),
        ("up for", _since(status["started_ms"], status["wall_ms"])),
        ("spark", _spark(status["spark"])),
    ))  # fmt: skip
    issues = [*_issues(status["issues"]), *(line for flow in flows for line in _issues(flow["issues"], flow["flow"]))]
    return [facts, _flows(flows), *map(Note, issues)]


def node_name(status: Json) -> str:
    """Return where a node is, and on which host, because localhost is on each."""
    address, host = status["worker_id"], status.get("host", "")
    return f"{address} on {host}" if host and host not in address else str(address)


def _fares(status: Json) -> str:
    if not status["is_ready"]:
        return "not ready"
    return "ready" if status["is_healthy"] else "running, but something needs attention"


def _since(then_ms: int | None, now_ms: int) -> str:
    return "" if then_ms is None else span(max(0.0, (now_ms - then_ms) / 1000))


def _spark(spark: Json | None) -> str:
    if spark is None:
        return ""
    slots = "as many slots as its cluster has" if spark["slots"] is None else f"{spark['slots']} slots"
    waiting = f", {spark['waiting']} epochs wait for one" if spark["waiting"] else ""
    return f"{'up' if spark['is_up'] else 'down'}, {slots}, {spark['used']} in use{waiting}"


def _flows(flows: Sequence[Json]) -> Sheet:
    # Most flows have one node.
    nodes = (">nodes",) if any(flow["nodes"] > 1 for flow in flows) else ()
    columns = (
        "flow", "state", *nodes, ">topics", ">partitions", ">records/s", ">bytes/s", ">lag", ">behind",
        ">level in", ">p50 ms", ">p99 ms",
    )  # fmt: skip
    rows = [
        (
            flow["flow"],
            flow["state"].replace("_", " "),
            *(count(flow["nodes"]) for _ in nodes),
            count(flow["topics"]),
            count(flow["partitions"]),
            rate(flow["records_per_s"]),
            size(flow["bytes_per_s"]),
            *_behind(flow),
            _in(flow["seconds_until_level"]),
            millis(flow["latency_p50_ms"]),
            millis(flow["latency_p99_ms"]),
        )
        for flow in flows
    ]
    return Sheet(columns, tuple(rows), empty="this node runs no flow")


def _issues(issues: Iterable[Json], flow: str = "") -> list[str]:
    """Return the daemon's judgement in sentences, those of a flow with its name."""
    return [": ".join(filter(None, [flow, _issue(issue)])) for issue in issues]


def _issue(issue: Json) -> str:
    sentence = ": ".join(filter(None, [issue["message"], issue["cause"]]))
    return f"{sentence}; {issue['hint']}" if issue["hint"] else str(sentence)


# A flow.


def flow_page(flow: Json) -> list[Part]:
    """Show one flow: its state, clusters, task groups, copy tasks and problems."""
    stages = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in flow["stages"].items() if number)
    facts = Facts((
        ("flow", flow["flow"]),
        ("state", flow["state"].replace("_", " ")),
        ("topics", count(flow["topics"])),
        ("looked", _looked(flow)),
        ("partitions", count(flow["partitions"]) + (f": {stages}" if stages else "")),
        ("missing", f"{count(flow['missing_partitions'])} at the target" if flow["missing_partitions"] else ""),
        ("copied", f"{count(flow['records'])} records, {size(flow['bytes'])}"),
        ("rate", f"{rate(flow['records_per_s'])} records/s, {size(flow['bytes_per_s'])}/s"),
        ("lag", "{} records, {} behind".format(*_behind(flow))),
        ("level", "" if flow["seconds_until_level"] is None else _in(flow["seconds_until_level"], "in ")),
        ("latency", f"p50 {millis(flow['latency_p50_ms'])} ms, p99 {millis(flow['latency_p99_ms'])} ms"),
        ("age when read", f"p50 {millis(flow['age_p50_ms'])} ms"),
        ("retention", _loss(_loss_s(flow))),
        ("throttled", span(flow["throttled_ms"] / 1000) if flow["throttled_ms"] else ""),
    ))  # fmt: skip
    return [
        facts,
        *map(Note, _issues(flow["issues"])),
        *_overrides(flow["overrides"], flow["wall_ms"]),
        _clusters(flow),
        _groups(flow),
        _tasks(flow),
        *([nodes_sheet(((flow["flow"], node) for node in flow["nodes"]), "Nodes")] if flow["nodes"] else []),
    ]


def _looked(flow: Json) -> str:
    """Return when the source's topics and consumer groups were listed last."""
    steps = {step["step"]: step["succeeded_ms"] for step in flow["steps"]}
    listed = (("topics", steps.get("refresh topics")), ("groups", steps.get("list consumer groups")))
    return ", ".join(f"{what} {_since(at_ms, flow['wall_ms'])} ago" for what, at_ms in listed if at_ms is not None)


def _overrides(overrides: Json, now_ms: int) -> list[Part]:
    """Return the overrides in force; empty if there are none."""
    held = dict(overrides["connectors"])
    held |= {f"topic {topic}": "paused" for topic in overrides["topics"]}
    held |= {f"{one['topic']}-{one['partition']}": "paused" for one in overrides["partitions"]}
    rows = [(what, _held(how, overrides["pauses"].get(what), now_ms)) for what, how in held.items()]
    rows += [(name, f"limit {limit}") for name, limit in _limits(overrides) if limit != "none"]
    rows += [
        (connector, f"{key} = {value}")
        for connector, lines in overrides["config"].items()
        for key, value in lines.items()
    ]
    return [Sheet(("of", "override"), tuple(rows), title="Overrides")] if rows else []


def _held(how: str, pause: Json | None, now_ms: int) -> str:
    return how if pause is None else f"{how} {_since(pause['at_ms'], now_ms)} ago by {pause['by'] or 'an operator'}"


def _limits(overrides: Json) -> list[tuple[str, str]]:
    topics = ((f"topic {topic}", limit_text(limit)) for topic, limit in overrides["topic_limits"].items())
    return [(overrides["flow"], limit_text(overrides["limit"])), *topics]


def _behind(it: Json) -> tuple[str, str]:
    """Return how far a flow or a topic is behind, in records and in time; see `model.behind`."""
    return at_least(count(it["lag"]), it["lag_is_least"]), at_least(span(it["lag_s"]), it["lag_s_is_least"])


def _in(seconds: float | None, word: str = "") -> str:
    """Return when something will be, after *word* where it is not now."""
    if seconds is None:
        return span(None)
    return f"{word}{span(seconds)}" if seconds >= 1 else "now"


def _loss_s(it: Json) -> float | None:
    """Return after what time a flow, or a topic, may lose records; at lag 0 there are none to lose."""
    seconds: float | None = it["seconds_until_loss"] if it["lag"] else None
    return seconds


def _loss(seconds: float | None) -> str:
    return "" if seconds is None else f"in {span(seconds)} the source may delete records that are not copied"


def _clusters(flow: Json) -> Sheet:
    rows = [
        (
            cluster["alias"],
            "not asked" if not cluster["is_asked"] else "reachable" if cluster["is_reachable"] else "unreachable",
            "; ".join(filter(None, [cluster["error"], cluster["hint"]])),
        )
        for cluster in flow["clusters"]
    ]
    return Sheet(("cluster", "state", "error"), tuple(rows), title="Clusters")


def _groups(flow: Json) -> Sheet:
    # All of them wait for an unreachable cluster; the reason is shown above.
    away = {
        cluster["error"]: f"waits for cluster {cluster['alias']}" for cluster in flow["clusters"] if cluster["error"]
    }
    rows = [
        (
            group["connector"],
            group["state"].replace("_", " "),
            count(group["restarts"]),
            away.get(group["last_error"]) or "; ".join(filter(None, [group["last_error"], group["hint"]])),
        )
        for group in flow["groups"]
    ]
    return Sheet(("connector", "state", ">restarts", "last error"), tuple(rows), title="Task groups")


def _tasks(flow: Json) -> Sheet:
    where = "node" if any(task["node"] for task in flow["tasks"]) else "worker"
    columns = ("task", "state", ">epoch", ">partitions", ">records/s", ">bytes/s", ">lost", where, "last error")
    rows = [
        (
            str(task["task"]),
            task["state"].replace("_", " "),
            count(task["epoch"]),
            count(task["partitions"]),
            rate(task["records_per_s"]),
            size(task["bytes_per_s"]),
            count(task["lost_epochs"]),
            text(task["worker"]) if where == "worker" else task["node"] or "this one",
            task["last_error"],
        )
        for task in flow["tasks"]
    ]
    return Sheet(columns, tuple(rows), title="Copy tasks")


# What belongs to a flow.


def topics_page(answer: Json) -> list[Part]:
    """Show topics as the daemon selected and sorted them."""
    columns = (
        "topic", "remote topic", ">parts", "state", ">lag", ">behind", ">level in", ">records/s", ">bytes/s", ">age ms",
        "why",
    )  # fmt: skip
    topics = answer["topics"]
    rows = [
        (
            topic["topic"],
            topic["remote_topic"],
            count(topic["partitions"]),
            _stage(topic),
            *_behind(topic),
            _in(topic["seconds_until_level"]),
            rate(topic["record_rate"]),
            size(topic["byte_rate"]),
            millis(topic["age_ms"]),
            _why(topic),
        )
        for topic in topics
    ]
    left = answer["total"] - len(rows)
    more = [Note(f"{left} more; --limit {answer['total']} shows all")] if left > 0 and rows else []
    return [Sheet(columns, tuple(rows), empty="no topic"), *more]


_STAGES: Final = {"missing": "missing at the target"}


def _stage(topic: Json) -> str:
    """Return a topic's state; if its partitions differ, how many are in that state."""
    if topic["is_paused"]:
        return "paused"
    if len(topic["stages"]) <= 1:
        return _STAGES.get(topic["stage"], str(topic["stage"]).replace("_", " "))
    stages = ((_STAGES.get(name, name.replace("_", " ")), many) for name, many in sorted(topic["stages"].items()))
    return ", ".join(f"{many} {name}" for name, many in stages)


def _why(topic: Json) -> str:
    limit = "" if topic["limit"] is None else f"limit {limit_text(topic['limit'])}"
    loss = _loss_s(topic)
    left = "" if loss is None else f"loss in {span(loss)}"
    again = "" if topic["retry_in_s"] is None else f"retried in {span(topic['retry_in_s'])}"
    others = ", ".join(f"{many} on {node}" for node, many in topic["elsewhere"].items())
    return "; ".join(filter(None, [topic["last_error"], topic["hint"], again, left, limit, others]))


def limit_text(limit: Json) -> str:
    """Return a limit in words."""
    said = []
    if limit["bytes_per_s"] is not None:
        said.append(f"{size(limit['bytes_per_s'])}/s")
    if limit["records_per_s"] is not None:
        said.append(f"{rate(limit['records_per_s'])} records/s")
    return " and ".join(said) or "none"


def limits_page(overrides: Json) -> list[Part]:
    """Show the limits of a flow and of its topics."""
    return [Sheet(("of", "limit"), tuple(_limits(overrides)))]


def groups_page(answer: Sequence[Json]) -> list[Part]:
    """Show consumer groups with their offsets at the source and, translated, at the target."""
    columns = (
        "group", "partition", ">upstream", ">downstream", ">committed there", ">left to read", "translation",
        "at the target", "if moved now",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for group in answer:
        at_target = ": ".join(filter(None, [group["at_target"], group["at_target_why"]])) or "-"
        move = group["move"]["text"] if group["move"] else "-"
        if not group["offsets"]:
            rows.append((group["group"], "-", "-", "-", "-", "-", group["why"] or "no offsets", at_target, move))
        for offset in group["offsets"]:
            how = offset["why"] or ("exact" if offset["is_exact"] else "as Java's")
            rows.append(
                (
                    group["group"],
                    f"{offset['source']['topic']}-{offset['source']['partition']}",
                    str(offset["upstream"]),
                    text(offset["downstream"]),
                    text(offset["committed"]),
                    count(offset["distance"]),
                    how,
                    at_target,
                    offset["move"]["text"],
                )
            )
    return [Sheet(columns, tuple(rows), empty="no group")]


def partitions_page(partitions: Sequence[Json]) -> list[Part]:
    """Show the partitions of a topic, those of other nodes too."""
    columns = (
        "partition", "state", ">position", ">end", ">lag", ">behind", ">records/s", ">bytes/s", "task", "node", "why",
    )  # fmt: skip
    rows = [
        (
            str(one["partition"]),
            "paused" if one["is_paused"] else one["stage"].replace("_", " "),
            text(one["position"]),
            text(one["end_offset"]),
            count(one["lag"]),
            span(one["lag_s"]),
            rate(one["record_rate"]),
            size(one["byte_rate"]),
            text(one["task"]),
            one["node"] or "this one",
            ""
            if one["failure"] is None
            else "; ".join(filter(None, [one["failure"]["message"], one["failure"]["hint"]])),
        )
        for one in partitions
    ]
    return [Sheet(columns, tuple(rows), empty="no partition")]


def offsets_page(answer: Json) -> list[Part]:
    """Show where a connector is: a source's positions, the next offsets to read, which are one more than the offsets of
    the last copied records that KIP-875 has; or the offsets of groups.
    """
    pairs = [
        (entry["partition"], _positioned(entry["partition"], entry["offset"] or {})) for entry in answer["offsets"]
    ]
    names = tuple(dict.fromkeys(name for partition, _ in pairs for name in partition))
    values = tuple(dict.fromkeys(name for _, offset in pairs for name in offset))
    rows = [
        (*(text(partition.get(name)) for name in names), *(text(offset.get(name)) for name in values))
        for partition, offset in pairs
    ]
    return [Sheet((*names, *(f">{name}" for name in values)), tuple(rows), empty="no offsets")]


def _positioned(partition: Json, offset: Json) -> Json:
    if "group" in partition or not isinstance(offset.get("offset"), int):
        return offset
    return {"position": offset["offset"] + 1, **{name: value for name, value in offset.items() if name != "offset"}}


def config_page(config: Mapping[str, str], changed: Iterable[Json], words: Sequence[str]) -> list[Part]:
    """Show a connector's config, starting with the keys that override the file."""
    instead = tuple(
        (setting["key"], setting["value"], text(setting["file_value"]))
        for setting in changed
        if not words or setting["key"] in words
    )
    rows = tuple((key, value) for key, value in sorted(config.items()) if not words or key in words)
    parts: list[Part] = [Sheet(("key", "value"), rows, empty="no such key")]
    if instead:
        parts.insert(0, Sheet(("key", "value", "in the file"), instead, title="Set while it runs"))
    return parts
