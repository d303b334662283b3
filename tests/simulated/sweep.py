"""Runs in processes of their own: what one leaves behind is not there for the next."""

from __future__ import annotations

import functools
import gc
import json
import os
import select
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator

import attrs
import psutil

from tests.simulated import codec, requests
from tests.simulated.options import Options
from tests.simulated.world import Result, execute


#: A run takes seconds; one that takes this long hangs. It is the CPU of the child that counts.
_MOST_CPU_S = 300.0
_LOOK_S = 1.0
_PART_BYTES = 1 << 20


def _as_it_is() -> None:
    """Break nothing."""


@attrs.frozen
class Run:
    """What is run: by which options, whether its time line is kept, and what breaks the product before."""

    options: Options
    keeps: bool = False
    broken: Callable[[], None] = _as_it_is


class _Child:
    """A process with a run, and what it has said so far."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.reader, writer = os.pipe()
        self.process = os.fork()
        if not self.process:
            os.close(self.reader)
            _run(run, writer)
        os.close(writer)
        self._said: list[bytes] = []

    def has_ended(self) -> bool:
        """Read what it says; whether that was all."""
        part = os.read(self.reader, _PART_BYTES)
        self._said.append(part)
        return not part

    def end_if_late(self) -> None:
        """Kill it if it took too long; a machine that is suspended does not count."""
        times = psutil.Process(self.process).cpu_times()
        if times.user + times.system > _MOST_CPU_S:
            os.kill(self.process, signal.SIGKILL)

    def result(self) -> Result:
        """Return what it came to."""
        os.close(self.reader)
        os.waitpid(self.process, 0)
        said = b"".join(self._said)
        if not said:
            return _failed(f"the run took more than {_MOST_CPU_S:g} s, or was killed")
        return Result(**json.loads(said))


def run_apart(options: Options, *, keeps: bool = False, broken: Callable[[], None] = _as_it_is) -> Result:
    """Run by *options* in a child; a run that raises, or does not end, is a violation."""
    ((_, result),) = run_all([Run(options, keeps, broken)])
    return result


def run_all(runs: Iterable[Run], *, jobs: int = 1) -> Iterator[tuple[Run, Result]]:
    """Do so many *runs* at a time, and return each with its result as it ends."""
    _prepare()
    left, children = iter(runs), dict[int, _Child]()
    while True:
        while len(children) < jobs and (run := next(left, None)) is not None:
            child = _Child(run)
            children[child.reader] = child
        if not children:
            return
        ready, _, _ = select.select(list(children), [], [], _LOOK_S)
        for reader in ready:
            if children[reader].has_ended():
                child = children.pop(reader)
                yield child.run, child.result()
        for child in children.values() if not ready else ():
            child.end_if_late()


@functools.cache
def _prepare() -> None:
    """Make what each run needs before there are any: schemas as code, and a heap that no collection looks through."""
    for kind, _ in requests.STRUCTS.values():
        for struct in (kind, kind.RESPONSE_TYPE):
            codec.reader(struct)
            codec.encoder(struct)
    gc.collect()
    gc.freeze()


def _run(run: Run, writer: int) -> None:
    try:
        run.broken()
        result = execute(run.options, keeps=run.keeps)
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
