"""Requests of the verbs of ``mm2py flow``: pure, from arguments to requests."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from mm2py.cli.command import ArgumentsError
from mm2py.core.herder.live_config import connector_of
from mm2py.core.herder.overrides import CHECKPOINT, HEARTBEAT, SOURCE, read_limit
from mm2py.errors import OverrideRejectedError
from mm2py.model.flow import Flow


#: The three connectors of a flow's task groups, by their short names.
CONNECTORS: Mapping[str, str] = {"source": SOURCE, "checkpoint": CHECKPOINT, "heartbeat": HEARTBEAT}

_DONE = {"pause": "paused", "resume": "resumed", "stop": "stopped", "restart": "restarted"}


@attrs.frozen
class Request:
    """One change; `done` describes it for the user."""

    method: str
    path: str
    done: str
    body: object = None
    query: Mapping[str, str] = attrs.field(factory=dict)


def judge_steering(options: argparse.Namespace) -> None:
    """Raise `ArgumentsError` if the options contradict each other; nothing has been requested yet."""
    if options.verb in {"restart", "refresh"}:
        return
    if options.partition is not None and options.topic is None:
        raise ArgumentsError("--partition needs its topic: name it with --topic")
    if options.topic is not None and options.verb == "stop":
        raise ArgumentsError("topics can be paused; only whole connectors can be stopped")
    if options.topic is not None and options.connector not in {None, "source"}:
        raise ArgumentsError("topics belong to the source connector; omit --connector")


def steering(verb: str, options: argparse.Namespace, listed: Sequence[str]) -> list[Request]:
    """Return the requests of pause, resume, stop, restart and refresh; *listed* are the flow's connectors."""
    flow: Flow = options.flow
    if verb == "refresh":
        return [Request("PUT", flow.url_path(verb), f"{flow} looks for new topics, partitions and consumer groups")]
    if verb == "restart":
        return _restarts(options, listed)
    topic, partition = options.topic, options.partition
    if topic is None and options.connector is None:
        return [Request("PUT", flow.url_path(verb), f"{flow} {_DONE[verb]}")]
    if topic is None:
        name = CONNECTORS[options.connector]
        return [Request("PUT", flow.url_path("connectors", name, verb), f"{name} of {flow} {_DONE[verb]}")]
    if partition is None:
        return [Request("PUT", flow.url_path("topics", topic, verb), f"topic {topic} of {flow} {_DONE[verb]}")]
    path = flow.url_path("topics", topic, "partitions", str(partition), verb)
    return [Request("PUT", path, f"{topic}-{partition} of {flow} {_DONE[verb]}")]


def _restarts(options: argparse.Namespace, listed: Sequence[str]) -> list[Request]:
    flow: Flow = options.flow
    if options.task is not None:
        name = CONNECTORS[options.connector or "source"]
        path = flow.url_path("connectors", name, "tasks", str(options.task), "restart")
        return [Request("POST", path, f"task {options.task} of {name} of {flow} restarts")]
    names = [CONNECTORS[options.connector]] if options.connector else listed
    query = {"includeTasks": "true", "onlyFailed": str(options.only_failed).lower()}
    # What works is left alone, and the answer does not tell.
    done = "restarts what has failed, if anything" if options.only_failed else "restarts"
    return [
        Request("POST", flow.url_path("connectors", name, "restart"), f"{name} of {flow} {done}", query=query)
        for name in names
    ]


def limiting(options: argparse.Namespace) -> Request | None:
    """Return the request for a new limit; None if the limit is only to be shown."""
    given = {
        name: None if text.strip().lower() == "none" else text
        for name in ("bytes_per_s", "records_per_s")
        if (text := getattr(options, name)) is not None
    }
    if options.none and given:
        raise ArgumentsError("--none removes the limit; omit the amounts")
    if options.none:
        given = {"bytes_per_s": None, "records_per_s": None}
    if not given:
        return None
    try:
        limit = read_limit(given)
    except OverrideRejectedError as error:
        raise ArgumentsError("; ".join(error.problems)) from error
    what = f"topic {options.topic} of {options.flow}" if options.topic else str(options.flow)
    body = {name: getattr(limit, name) for name in given}
    done = f"{what}: no limit" if options.none else f"{what}: limit set"
    path = options.flow.url_path(*(["topics", options.topic] if options.topic else []), "limit")
    return Request("PUT", path, done, body=body)


def configuring(options: argparse.Namespace) -> list[Request]:
    """Return the requests of config set, unset and revert, one for each connector that they concern."""
    if options.action == "revert":
        if options.words:
            raise ArgumentsError("revert reverts all keys; unset reverts single keys")
        name = CONNECTORS[options.connector or "source"]
        path = options.flow.url_path("connectors", name, "config")
        return [Request("DELETE", path, f"{name} of {options.flow} uses the file's settings again")]
    if not options.words:
        raise ArgumentsError(f"config {options.action} needs a KEY" + ("=VALUE" if options.action == "set" else ""))
    if options.action == "unset":
        if wrong := [word for word in options.words if "=" in word]:
            raise ArgumentsError(f"unset takes keys only, not {', '.join(wrong)}")
        changes: dict[str, str | None] = dict.fromkeys(options.words)
        done = "as in the file"
    else:
        changes, done = dict(map(_set, options.words)), "changed"
    return [
        Request(
            "PATCH",
            options.flow.url_path("connectors", name, "config"),
            f"{name} of {options.flow}: {', '.join(keys)} {done}",
            body={key: changes[key] for key in keys},
        )
        for name, keys in connectors_of(options.connector, changes).items()
    ]


def connectors_of(connector: str | None, keys: Iterable[str]) -> dict[str, list[str]]:
    """Return *keys* by the connector that they are for: the one that is named, or else each key's own."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(CONNECTORS[connector] if connector else connector_of(key), []).append(key)
    return found


def reverting(options: argparse.Namespace) -> Request:
    """Return the request that reverts all overrides of a flow."""
    done = f"{options.flow} runs as its file says: no pause, no limit, no changed setting"
    return Request("DELETE", options.flow.url_path("overrides"), done)


def restarts(options: argparse.Namespace) -> str:
    """Return what is to be asked first, because it interrupts what runs well; nothing if it does not."""
    if options.verb == "restart" and options.task is None and not options.only_failed:
        which = f"the {options.connector} connector of {options.flow}" if options.connector else str(options.flow)
        return f"Restart {which}?"
    if options.verb == "revert":
        return f"Revert all overrides of {options.flow}? What they changed restarts."
    if options.verb == "config" and options.action != "get":
        keys = ", ".join(word.partition("=")[0].strip() for word in options.words) or "all keys"
        change = {"set": "Change", "unset": "Revert", "revert": "Revert"}[options.action]
        return f"{change} {keys} of {options.flow}? {_restarting(options)}"
    return ""


def _restarting(options: argparse.Namespace) -> str:
    """Return what a change of settings restarts, as `FlowSetting.restarts` has it."""
    keys = [word.partition("=")[0].strip() for word in options.words]
    names = connectors_of(options.connector, keys) or [CONNECTORS[options.connector or "source"]]
    if SOURCE in names:
        return "Copying drains and restarts; no record is lost or repeated."
    return f"{' and '.join(sorted(names))} will restart; copying continues."


def still_paused(overrides: Mapping[str, Any]) -> list[str]:
    """Return what is paused or stopped by the *overrides* of a flow."""
    found = [f"{connector} ({wanted.lower()})" for connector, wanted in overrides["connectors"].items()]
    found += [f"topic {topic}" for topic in overrides["topics"]]
    return found + [f"{one['topic']}-{one['partition']}" for one in overrides["partitions"]]


def _set(word: str) -> tuple[str, str]:
    key, sign, value = word.partition("=")
    if not key.strip() or not sign:
        raise ArgumentsError(f"expected KEY=VALUE, found {word}")
    return key.strip(), value.strip()
