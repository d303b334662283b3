"""
The command line of the first MirrorMaker, ``kafka-mirror-maker.sh``, as lines of an ``mm2.properties``.

One consumer's file, one producer's file and a regular expression make one flow that keeps topic names and only copies:
no heartbeats, no checkpoints, no offset syncs, no configs, no ACLs. It starts at the old consumer group's committed
offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from mm2py.config.importers.lines import VERBATIM, Lines, ParsedFile, named_files, read_files, seconds_of
from mm2py.config.layers import Imported, is_client_key
from mm2py.config.problem import Problem


COMMAND = "kafka-mirror-maker"
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
#: Topics that MirrorMaker 1's consumer never subscribed to, and mm2py's own.
_INTERNAL = r"mm2.*\.internal, __consumer_offsets, __transaction_state, __share_group_state"
_NEW_TOPICS_S = "300"
_OFF = (
    "emit.heartbeats.enabled",
    "emit.checkpoints.enabled",
    "emit.offset-syncs.enabled",
    "heartbeats.replication.enabled",
    "sync.topic.configs.enabled",
    "sync.topic.acls.enabled",
)
#: Client keys that MirrorMaker 1 set itself, or that concern its consumer group.
_ITS_OWN = frozenset(
    {
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "partition.assignment.strategy",
        "exclude.internal.topics",
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
        "producer.type",
    }
)


@attrs.frozen
class LegacyOptions:
    """The options of the command line; None for omitted ones."""

    consumer_config: Path
    producer_config: Path
    include: str
    #: The option's spelling: ``--include`` or ``--whitelist``.
    include_option: str = "--include"
    num_streams: str | None = None
    offset_commit_interval_ms: str | None = None
    abort_on_send_failure: str | None = None
    consumer_rebalance_listener: str | None = None
    message_handler: str | None = None
    #: The name under which positions are stored; None: the consumer group's.
    source_alias: str | None = None


def import_legacy(options: LegacyOptions) -> Imported:
    """Convert the command line and its two files to a flow. Nothing is raised; problems are in the result."""
    consumer, producer = read_files(options.consumer_config, options.producer_config)
    problems = [*consumer.problems, *producer.problems, *_judge(consumer, producer)]
    notes = [*consumer.notes, *producer.notes]
    group = consumer.entries.get("group.id")
    source, target = options.source_alias or (group.value.strip() if group else "") or "source", "target"
    if _TOPIC_NAME.fullmatch(source) is None or source == target:
        where, key = (group.where, "group.id") if group and not options.source_alias else (COMMAND, "--source.alias")
        message = f"positions cannot be stored under the name {source!r}"
        problems.append(Problem(where, key, message, "give --source.alias letters, digits, dots, underscores, dashes"))
        source = "source"
    flow = f"{source}->{target}"
    lines = Lines(COMMAND)
    lines.set("clusters", f"{source}, {target}")
    lines.set(f"{flow}.enabled", "true")
    _take_client(lines, consumer, source, f"{source}.consumer")
    _take_client(lines, producer, target, f"{target}.producer")
    _take_options(lines, options, flow, target)
    if group is not None and group.value.strip():
        lines.take(f"{flow}.copy.start.group", group, group.value.strip())
    for key in _OFF:
        lines.set(key, "false")
    lines.set(f"{flow}.replication.policy.class", VERBATIM)
    lines.set(f"{flow}.topics.exclude", _INTERNAL)
    # It left the creation of topics to the target's brokers, and its offsets to the source's.
    lines.set(f"{flow}.replication.factor", "-1")
    lines.set(f"{target}.offset.storage.replication.factor", "-1")
    lines.set(f"{target}.config.storage.replication.factor", "-1")
    # It found new topics when its consumer's metadata was refreshed.
    age = consumer.entries.get("metadata.max.age.ms")
    lines.set(f"{flow}.refresh.topics.interval.seconds", seconds_of(age.value if age else "") or _NEW_TOPICS_S)
    # A consumer's default is the end.
    lines.set(f"{source}.consumer.auto.offset.reset", "latest")
    notes.extend(_notes(options, consumer, producer, source))
    problems.extend(_judge_options(options))
    named = named_files(options.consumer_config, options.producer_config)
    return Imported(named, lines.all(), tuple(problems), tuple(notes), COMMAND)


def _take_client(lines: Lines, file: ParsedFile, alias: str, client: str) -> None:
    for key, entry in file.entries.items():
        if key in _ITS_OWN or key == "group.id":
            continue
        lines.take(f"{alias}.{key}" if is_client_key(key) else f"{client}.{key}", entry)


def _take_options(lines: Lines, options: LegacyOptions, flow: str, target: str) -> None:
    lines.set(f"{flow}.topics", _expression(options.include), written=options.include_option)
    if options.num_streams is not None:
        lines.set(f"{flow}.tasks.max", options.num_streams, written="--num.streams")
    if options.offset_commit_interval_ms is not None:
        key, option = f"{target}.offset.flush.interval.ms", "--offset.commit.interval.ms"
        lines.set(key, options.offset_commit_interval_ms, written=option)


def _expression(text: str) -> str:
    """Return the regular expression as MirrorMaker 1 reads it: commas mean |, spaces and outer quotes are dropped."""
    return text.strip().replace(",", "|").replace(" ", "").strip("\"'")


def _judge(consumer: ParsedFile, producer: ParsedFile) -> list[Problem]:
    problems = []
    for file, what in ((consumer, "the source"), (producer, "the target")):
        if not file.problems and "bootstrap.servers" not in file.entries:
            message = f"missing: the brokers of {what}"
            problems.append(Problem(file.name, "bootstrap.servers", message, "add bootstrap.servers = host:port"))
    group = consumer.entries.get("group.id")
    if not consumer.problems and (group is None or not group.value.strip()):
        message = "missing: the consumer group of MirrorMaker 1, at whose offsets the mirror starts"
        problems.append(Problem(consumer.name, "group.id", message, "add group.id = NAME"))
    servers = [file.entries.get("bootstrap.servers") for file in (consumer, producer)]
    one, other = servers
    if one is not None and other is not None and one.value.strip() == other.value.strip():
        message = f"the same brokers as in {consumer.name}: a topic would be copied into itself without end"
        problems.append(Problem(other.where, "bootstrap.servers", message, "name the target's brokers"))
    return problems


def _judge_options(options: LegacyOptions) -> list[Problem]:
    problems = []
    if not _expression(options.include):
        problems.append(Problem(COMMAND, options.include_option, "names no topic"))
    if options.message_handler is not None:
        message = "records are copied unopened: a handler cannot change, drop or move them"
        hint = "omit the option if the target does not need the handler"
        problems.append(Problem(COMMAND, "--message.handler", message, hint))
    return problems


def _notes(options: LegacyOptions, consumer: ParsedFile, producer: ParsedFile, source: str) -> Iterator[Problem]:
    if options.include_option == "--whitelist":
        yield Problem(COMMAND, "--whitelist", "a former name of --include", "write --include")
    if options.abort_on_send_failure is not None and options.abort_on_send_failure.strip().lower() != "true":
        message = "nothing is skipped: failed sends are retried until they succeed"
        yield Problem(COMMAND, "--abort.on.send.failure", message)
    if options.consumer_rebalance_listener is not None:
        yield Problem(COMMAND, "--consumer.rebalance.listener", "without effect: there is no group to rebalance")
    internal = consumer.entries.get("exclude.internal.topics")
    if internal is not None and internal.value.strip().lower() == "false":
        yield Problem(internal.where, internal.key, "internal topics are never copied")
    entries = [entry for file in (consumer, producer) for entry in file.entries.values()]
    if silent := [entry for entry in entries if entry.key in _ITS_OWN and entry is not internal]:
        named = ", ".join(f"{entry.key} ({entry.where})" for entry in silent)
        yield Problem("", "", f"without effect, records are copied as they are and without a group: {named}")
    if "auto.offset.reset" not in consumer.entries:
        message = "not set: topics that are there without committed offsets of the group are mirrored from their end"
        yield Problem(
            consumer.name,
            "auto.offset.reset",
            message,
            "set auto.offset.reset = earliest to mirror them from the beginning",
        )
    if (group := consumer.entries.get("group.id")) is not None:
        kept = f"from then on positions are stored on the target, in mm2-offsets.{source}.internal"
        yield Problem(group.where, "group.id", f"the mirror starts at this group's committed offsets; {kept}")
