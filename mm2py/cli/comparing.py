"""What ``mm2py verify`` does: it reads the options, compares, and prints the result."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import sys
from contextlib import nullcontext

from rich.console import Console

from mm2py.cli.asking import MirrorFile
from mm2py.cli.command import ArgumentsError, printed, run
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.positions import read_settings
from mm2py.cli.sheets import show_json
from mm2py.cli.verify_report import as_json, print_report, shown
from mm2py.clock import Clock, SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.model.patterns import PatternError
from mm2py.pipeline.spark.session import SparkHost
from mm2py.pipeline.spark.settings import with_retries
from mm2py.policy.filters import DefaultTopicFilter
from mm2py.telemetry.journal import EventLog
from mm2py.verify.job import VerifyRunner
from mm2py.verify.run import Moment, Verification, VerifyRequest
from mm2py.verify.values import VerifyReport


_STOP_S = 10.0
_SPARK_TASK_FAILURES = 4
#: Spark takes the longer to start a task the more slots it has.
_MOST_SLOTS = 1_000
_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def compare(options: argparse.Namespace) -> int:
    """Compare as the *options* say; print the result and return the exit code."""
    reports: list[VerifyReport] = []

    async def question() -> None:
        clock = SystemClock()
        request = _request(options, clock)
        mirror = MirrorFile(await read_settings(options, clock))
        settings = mirror.chosen(options.flow)
        reports.append(await _verify(mirror, settings, request, clock, is_quiet=options.quiet or options.json))

    code = run(question)
    if code != ExitCode.OK or not reports:
        return code or ExitCode.FAILED
    (report,) = reports

    def output() -> int:
        if options.json:
            show_json(as_json(report))
        else:
            print_report(report)
        return int(report.verdict)

    return printed(output, cut_short=int(report.verdict))


def _request(options: argparse.Namespace, clock: Clock) -> VerifyRequest:
    if not 0 < options.sample <= 1:
        raise ArgumentsError(f"--sample {options.sample:g}: give a share above 0 and up to 1")
    if options.slots is not None and not 0 < options.slots <= _MOST_SLOTS:
        raise ArgumentsError(f"--slots {options.slots}: give a number from 1 to {_MOST_SLOTS}")
    topics = tuple(name.strip() for name in options.topics.split(",") if name.strip())
    if options.topics.strip() and not topics:
        raise ArgumentsError(f"--topics {options.topics}: no topic is named")
    try:
        DefaultTopicFilter.of(topics)
    except PatternError as error:
        raise ArgumentsError(f"--topics: {error}") from error
    now_ms = clock.wall_ms()
    start, end = _moment(options.start, now_ms, "--from"), _moment(options.end, now_ms, "--to")
    if start is not None and start.timestamp_ms is not None and start.timestamp_ms >= now_ms:
        raise ArgumentsError(f"--from {options.start} is not before now: nothing would be compared")
    if start is not None and end is not None and _is_empty(start, end):
        raise ArgumentsError(f"--to {options.end} is not after --from {options.start}: nothing would be compared")
    return VerifyRequest(
        topics=topics,
        start=start,
        end=end,
        share=options.sample,
        seed=now_ms & 0xFFFF if options.seed is None else options.seed,
        ignore_expired=options.ignore_expired,
        slots=options.slots or len(os.sched_getaffinity(0)),
    )


def _moment(text: str, now_ms: int, option: str) -> Moment | None:
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return Moment(offset=int(text))
    if (ago := _AGO.fullmatch(text)) is not None:
        return Moment(timestamp_ms=now_ms - int(min(now_ms, float(ago[1]) * _UNIT_MS[ago[2]])))
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentsError(f"{option} {text}: write an offset, -12h, or 2026-11-21T15:00") from error
    if at.tzinfo is None:
        at = at.replace(tzinfo=dt.UTC)
    return Moment(timestamp_ms=int(at.timestamp() * 1000))


def _is_empty(start: Moment, end: Moment) -> bool:
    """Whether nothing is in between; False where an offset and a time cannot be compared."""
    pairs = ((start.offset, end.offset), (start.timestamp_ms, end.timestamp_ms))
    return any(one is not None and two is not None and one >= two for one, two in pairs)


async def _verify(
    mirror: MirrorFile, settings: FlowSettings, request: VerifyRequest, clock: Clock, *, is_quiet: bool
) -> VerifyReport:
    file = mirror.settings
    # It only reads, so Spark may retry lost tasks.
    spark = with_retries(file.spark, slots=request.slots, failures=_SPARK_TASK_FAILURES)
    host = SparkHost(
        spark,
        copy_tasks=request.slots,
        clock=clock,
        events=EventLog(clock),
        secrets_key_file=file.secrets_key_file,
    )
    try:
        with nullcontext(lambda _: None) if is_quiet else shown(Console(file=sys.stderr, highlight=False)) as progress:
            runner = VerifyRunner(host, clock, _say)
            return await Verification(settings, request, runner, clock=clock, progress=progress).run()
    finally:
        await host.stop(within_s=_STOP_S)


def _say(text: str) -> None:
    print(f"mm2py: {text}", file=sys.stderr, flush=True)
