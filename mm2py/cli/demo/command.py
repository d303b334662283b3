"""
``mm2py demo``: two real clusters, a stream of records, a mirror between them, and proof that nothing was lost.

Everything is started here and removed again, however the demo ends: normally, with an error, or by Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import enum
import itertools
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import reduce
from pathlib import Path

from rich.console import Console

from mm2py.cli.command import drop_unwritten
from mm2py.cli.demo.arguments import make_parser, parse
from mm2py.cli.demo.proof import Proof, prove
from mm2py.cli.demo.screen import Screen, latency_in_words, make_screen
from mm2py.cli.demo.snapshot import Snapshot, TopicSnapshot
from mm2py.cli.demo.stage import SOURCE, TARGET, Stage
from mm2py.cli.demo.stream import TOPICS, SampleTopic, samples
from mm2py.cli.demo.watch import Watch
from mm2py.clock import Clock, SystemClock
from mm2py.connectors.supervise import leaves
from mm2py.devkit.jars import KAFKA_VERSION, cache_directory, java_command, kafka_jars
from mm2py.errors import Mm2Error
from mm2py.wire.sample_load import SampleProducer, read_as_group, read_fingerprints


_LOOK_EVERY_S = 0.5
_WRITE_EVERY_S = 0.05
#: Time limit for the first mirrored record, and, once the stream is over, for each further one.
_FIRST_LIMIT_S = 120.0
_STALL_LIMIT_S = 30.0
_TASKS_MAX = 2
#: Records a second, and the consumer group, once the stream is over and everything stays up.
_TRICKLE = 20
READERS = "shop-reports"


class DemoExit(enum.IntEnum):
    """How the demo ended."""

    PROVEN = 0
    DIFFERENT = 1
    FAILED = 2
    INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo."""
    options = parse(make_parser(), arguments)
    clock = SystemClock()
    screen = make_screen(Console(highlight=False), clock)
    # The producers of the stream send again what a broker does not know its topic for yet, and would say so each time.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # The demo removes everything, however it is asked to end, also by closing its terminal. A shell's background jobs
    # ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with Stage() as stage:
            return _run(stage, screen, options, clock)
    except KeyboardInterrupt:
        screen.say("Interrupted; everything is stopped and removed.")
        return DemoExit.INTERRUPTED
    except SystemExit:  # from rich: the reader of what is printed closed the pipe, as `head` does
        return DemoExit.INTERRUPTED
    except (Mm2Error, OSError, BaseExceptionGroup) as error:
        for line in _lines(error):
            print(f"mm2py demo: {line}", file=sys.stderr)
        drop_unwritten(sys.stdout)
        return DemoExit.FAILED


def _lines(error: BaseException) -> list[str]:
    """Return what went wrong; a bug keeps its traceback."""
    found = list(leaves(error)) if isinstance(error, BaseExceptionGroup) else [error]
    # A full disk, or a folder that cannot be written, is none of ours.
    bugs = [each for each in found if not isinstance(each, Mm2Error | OSError)]
    if bugs:
        raise bugs[0]
    return list(dict.fromkeys(map(str, found)))


def _run(stage: Stage, screen: Screen, options: argparse.Namespace, clock: Clock) -> int:
    screen.say("mm2py demo: two real Kafka clusters on this machine and a mirror between them", "bold")
    java_command()
    with screen.step(f"Kafka {KAFKA_VERSION} in {cache_directory()} (downloaded once, about 60 MB)") as step:
        kafka_jars()
        step.result = f"Kafka {KAFKA_VERSION} is in {cache_directory()}"
    with screen.step(f"starting the clusters {SOURCE} and {TARGET}") as step:
        stage.start_clusters()
        step.result = (
            f"clusters are up: {SOURCE} {stage.source.bootstrap_servers}, {TARGET} {stage.target.bootstrap_servers}"
        )
    snapshot, written = asyncio.run(_mirror(stage, screen, options, clock))
    if not options.keep_running:
        with screen.step("draining the mirror") as step:
            exit_code = stage.stop_mirror()
            step.result = f"mirror drained, exit code {exit_code}"
        if exit_code:
            raise stage.mirror_error(f"did not shut down cleanly, but with exit code {exit_code}")
    with screen.step("reading both sides back and comparing every record") as step:
        proof = asyncio.run(_prove(stage, snapshot.topics, written))
        step.result = f"{proof.records:,} records read from each side" if proof.is_complete else "the two sides differ"
    _conclude(screen, snapshot, proof)
    if options.keep_running:
        try:
            asyncio.run(_keep_running(stage, screen, snapshot, clock))
        except KeyboardInterrupt:
            screen.say("stopping …")
    return DemoExit.PROVEN if proof.is_complete else DemoExit.DIFFERENT


async def _mirror(
    stage: Stage, screen: Screen, options: argparse.Namespace, clock: Clock
) -> tuple[Snapshot, dict[str, int]]:
    """Write the stream while the mirror starts and runs. Return the last snapshot, taken when it had caught up, and
    how many records of each topic were acknowledged.
    """
    is_over = asyncio.Event()
    async with AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
        watch = await opened.enter_async_context(Watch(stage, TOPICS, clock))
        await watch.create_topics()
        producers = [
            await opened.enter_async_context(
                SampleProducer(
                    stage.source.bootstrap_servers, topic.name, partitions=topic.partitions, codec=topic.codec
                )
            )
            for topic in TOPICS
        ]
        stage.start_mirror(_TASKS_MAX)
        watch.mirror_started()
        screen.say(f"the mirror's status page: {stage.page}", "bold")
        writing = [
            tasks.create_task(_write(producer, topic, options.rate, is_over, clock), name=f"write {topic.name}")
            for producer, topic in zip(producers, TOPICS, strict=True)
        ]
        with screen.watching(f"{SOURCE} ▶ {TARGET}"):
            await _show_stream(stage, watch, screen, options, clock)
            is_over.set()
            await asyncio.wait(writing)
            snapshot = await _show_rest(stage, watch, screen, clock)
        return snapshot, {producer.topic: producer.acknowledged for producer in producers}


async def _write(producer: SampleProducer, topic: SampleTopic, rate: int, is_over: asyncio.Event, clock: Clock) -> None:
    """Write a topic's share of *rate* records a second until the stream is over."""
    records = samples(topic, clock.wall_ms)
    begun, written = clock.monotonic(), 0
    while not is_over.is_set():
        due = int((clock.monotonic() - begun) * rate * topic.share / 100)
        await producer.write(itertools.islice(records, due - written))
        written = due
        await clock.sleep(_WRITE_EVERY_S)


async def _show_stream(stage: Stage, watch: Watch, screen: Screen, options: argparse.Namespace, clock: Clock) -> None:
    begun = clock.monotonic()
    while True:
        stage.check()
        snapshot = await watch.look()
        since = snapshot.since_first_s
        if since is None and clock.monotonic() - begun > _FIRST_LIMIT_S:
            raise stage.mirror_error(f"copied nothing within {_FIRST_LIMIT_S:g} s")
        is_starting = since is None
        screen.show(snapshot, "the mirror starts" if is_starting else f"{since:.0f} of {options.seconds:g} s")
        if since is not None and since >= options.seconds:
            return
        await clock.sleep(_LOOK_EVERY_S)


async def _show_rest(stage: Stage, watch: Watch, screen: Screen, clock: Clock) -> Snapshot:
    """Let the mirror catch up after the end of the stream. If it makes no progress, the comparison will show it."""
    moved_at, mirrored = clock.monotonic(), -1
    while True:
        stage.check()
        snapshot = await watch.look()
        screen.show(snapshot, "the stream is over")
        if snapshot.mirrored != mirrored:
            moved_at, mirrored = clock.monotonic(), snapshot.mirrored
        if snapshot.flow.lag == 0 or clock.monotonic() - moved_at > _STALL_LIMIT_S:
            return snapshot
        await clock.sleep(_LOOK_EVERY_S)


async def _prove(stage: Stage, topics: Sequence[TopicSnapshot], written: Mapping[str, int]) -> Proof:
    proofs = []
    for topic in topics:
        async with asyncio.TaskGroup() as reading:
            source = reading.create_task(
                read_fingerprints(stage.source.bootstrap_servers, topic.topic, topic.partitions), name="read source"
            )
            remote = reading.create_task(
                read_fingerprints(stage.target.bootstrap_servers, topic.remote_topic, topic.partitions),
                name="read remote",
            )
        proofs.append(prove(topic.topic, source.result(), remote.result(), written=written[topic.topic]))
    return reduce(Proof.plus, proofs)


def _conclude(screen: Screen, snapshot: Snapshot, proof: Proof) -> None:
    screen.say()
    if not proof.is_complete:
        screen.say(
            f"DIFFERENT: {proof.written:,} records were written, the source holds {proof.records:,}, and "
            f"{len(proof.differences)} of {proof.partitions} partitions differ:",
            "bold red",
        )
        for difference in proof.differences:
            screen.say(f"  {difference}")
        return
    screen.say(
        f"VERIFIED: {proof.topics} topics, {proof.partitions} partitions, {proof.records:,} records: the remote topics "
        "hold what the source topics hold, in the same order; none missing, none twice.",
        "bold green",
    )
    latency = f" In the last seconds of the stream: {latency_in_words(snapshot.flow)}."
    screen.say(
        f"The first record was mirrored {snapshot.first_after_s or 0:.1f} s after the mirror was started."
        + (latency if snapshot.flow.latency_p50_ms is not None else "")
    )


async def _keep_running(stage: Stage, screen: Screen, snapshot: Snapshot, clock: Clock) -> None:
    """Keep a trickle of records and a consumer group going until Ctrl-C, and print what to try."""
    screen.say()
    screen.say("Everything stays up; new topics are mirrored too. Ctrl-C stops and removes it all.", "bold")
    screen.say(f"{_TRICKLE} records a second go on, and the group {READERS} reads {TOPICS[0].name} on {SOURCE}.")
    for name, value in (
        (SOURCE, stage.source.bootstrap_servers),
        (TARGET, stage.target.bootstrap_servers),
        ("status page", stage.page),
        ("settings", stage.properties_file),
        ("log", stage.log_file),
        ("status", stage.status_file),
        ("Spark UI", snapshot.spark_ui),
    ):
        screen.say(f"  {name:<11} {value}")
    screen.say()
    screen.say("Three things to try in another terminal:", "bold")
    for what, command in to_try(stage):
        screen.say(f"  {what}")
        screen.say(f"    {command}")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_trickle(stage.source.bootstrap_servers, clock), name="trickle")
        while True:
            stage.check()
            await clock.sleep(_LOOK_EVERY_S)


async def _trickle(servers: str, clock: Clock) -> None:
    """Write a few records a second to each topic, and read the first topic as a group, until cancelled."""
    is_over = asyncio.Event()
    async with AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
        for topic in TOPICS:
            producer = await opened.enter_async_context(
                SampleProducer(servers, topic.name, partitions=topic.partitions, codec=topic.codec)
            )
            tasks.create_task(_write(producer, topic, _TRICKLE, is_over, clock), name=f"write {topic.name}")
        tasks.create_task(read_as_group(servers, TOPICS[0].name, READERS), name=f"group {READERS}")


def to_try(stage: Stage) -> list[tuple[str, str]]:
    """Return commands for a mirror that is up, each with what it shows."""
    beside = Path(sys.executable).with_name("mm2py")
    mm2py = str(beside) if beside.exists() else f"{sys.executable} -m mm2py"
    flow, url = f"{mm2py} flow '{SOURCE}->{TARGET}'", f"--url {stage.page}"
    topic = TOPICS[0].name
    return [
        ("the topics while records come, until Ctrl-C", f"{flow} topics --watch {url}"),
        (f"pause {topic}, see its lag grow, and go on", " ; ".join(
            f"{flow} {verb} {url}" for verb in (f"pause --topic {topic}", "topics", f"resume --topic {topic}")
        )),
        (f"where the group {READERS} would go on at {TARGET}", f"{flow} groups {url}"),
    ]  # fmt: skip
