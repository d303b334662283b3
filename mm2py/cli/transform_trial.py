"""What ``mm2py transform`` does: newest records of a topic, through the flow's transform, and both printed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

from mm2py.cli.asking import MirrorFile
from mm2py.cli.command import ArgumentsError
from mm2py.clock import Clock
from mm2py.connectors.plugins import transforms_of
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.session import SparkHost
from mm2py.pipeline.transform.dry_run import Tried, newest, try_out
from mm2py.pipeline.transform.record import Row
from mm2py.telemetry.journal import EventLog


_STOP_WITHIN_S = 5.0
_SHOWN = 200
#: They are all in memory at once.
_SAMPLE_MAX = 10_000


async def show(options: argparse.Namespace, clock: Clock) -> None:
    """Print records before and after the transform that *options* name."""
    if not 1 <= options.sample <= _SAMPLE_MAX:
        raise ArgumentsError(f"--sample must be from 1 to {_SAMPLE_MAX}")
    mirror = MirrorFile.read(options.file)
    settings = mirror.chosen(options.flow)
    transforms = transforms_of(settings.source_connector)
    task = transforms.task_of(options.topic)
    remote_topic = transforms.name_remote(options.topic)
    transform = transforms.tasks[task] if task is not None else Transform("no transform")
    records = await newest(settings.source_connector, options.topic, options.sample, clock)
    host = SparkHost(mirror.settings.spark, copy_tasks=1, clock=clock, events=EventLog(clock))
    try:
        with redirect_stdout(sys.stderr):  # what a function prints is no part of the answer
            tried = await try_out(host, transform, records, transforms.name_by_policy(options.topic))
    finally:
        await host.stop(within_s=_STOP_WITHIN_S)
    if options.json:
        for one in tried:
            print(json.dumps(_plain(one, remote_topic), ensure_ascii=False))
        return
    how = transform.name if task is not None else "no transform, records travel unopened"
    print(f"{settings.flow}  {options.topic} -> {remote_topic}  ({how})")
    for one in tried:
        _print(one)
    print(_summary(tried))


def _print(one: Tried) -> None:
    print(f"\n{one.before.topic}-{one.before.partition} offset {one.before.offset}")
    _print_row("before", one.before)
    if one.after is not None:
        _print_row("after", one.after)
    else:
        print(f"  after   {f'fails: {one.error}' if one.error else 'dropped'}")


def _print_row(title: str, row: Row) -> None:
    headers = " ".join(f"{name}={_shown(value)}" for name, value in row.headers)
    print(f"  {title:7} key {_shown(row.key)}  timestamp {row.timestamp}" + (f"  {headers}" if headers else ""))
    print(f"          {_shown(row.value)}")


def _shown(content: bytes | None) -> str:
    if content is None:
        return "null"
    text = content.decode(errors="backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(content)} bytes)"


def _summary(tried: Sequence[Tried]) -> str:
    failed = sum(1 for one in tried if one.error)
    dropped = sum(1 for one in tried if one.after is None) - failed
    changed = sum(1 for one in tried if one.after is not None and one.after != one.before)
    return f"\n{len(tried)} records: {changed} changed, {dropped} dropped, {failed} fail; nothing was written"


def _plain(one: Tried, remote_topic: str) -> dict[str, Any]:
    after = None if one.after is None else _row(one.after)
    return {"remote_topic": remote_topic, "before": _row(one.before), "after": after, "error": one.error}


def _row(row: Row) -> dict[str, Any]:
    def text(content: bytes | None) -> str | None:
        return None if content is None else content.decode(errors="backslashreplace")

    plain = row._asdict()
    headers = [[name, text(value)] for name, value in row.headers]
    return {**plain, "key": text(row.key), "value": text(row.value), "headers": headers}
