"""Runs in processes of their own: what one leaves behind is not there for the next."""

from __future__ import annotations

import json
import os
import select
import signal
import traceback
from collections.abc import Iterator

import attrs
import psutil

from tests.simulated.options import Options
from tests.simulated.world import Result, execute


#: A run takes seconds; one that takes this long hangs. It is the CPU of the child that counts.
_MOST_CPU_S = 300.0
_LOOK_S = 1.0
_PART_BYTES = 1 << 20


def run_apart(options: Options, *, keeps: bool = False) -> Result:
    """Run by *options* in a child; a run that raises, or does not end, is a violation."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _run(options, writer, keeps=keeps)
    os.close(writer)
    said = b"".join(_read(reader, child))
    os.close(reader)
    os.waitpid(child, 0)
    return Result(**json.loads(said)) if said else _failed(f"the run took more than {_MOST_CPU_S:g} s, or was killed")


def _run(options: Options, writer: int, *, keeps: bool) -> None:
    try:
        result = execute(options, keeps=keeps)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the result
        result = _failed(f"the run itself failed: {error!r}\n{traceback.format_exc()}")
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(json.dumps(attrs.asdict(result)).encode())
    os._exit(0)


def _failed(why: str) -> Result:
    return Result(
        violations=[why], digest="", faults=[], cpu_s=0, virtual_s=0, turns=0, records=0, requests={}, events={},
        codes={}, rss_mb=0, timeline=[],
    )  # fmt: skip


def _read(reader: int, child: int) -> Iterator[bytes]:
    while True:
        ready, _, _ = select.select([reader], [], [], _LOOK_S)
        if ready:
            part = os.read(reader, _PART_BYTES)
            if not part:
                return
            yield part
        elif _cpu_s(child) > _MOST_CPU_S:
            os.kill(child, signal.SIGKILL)
            return


def _cpu_s(process: int) -> float:
    """Return the CPU time of a process, which does not go on while the machine is suspended."""
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)
