"""One mirror process: started on a configuration file, watched with all its descendants, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType

import attrs

from bench.candidates import MODULE, Candidate, FlowSettings, as_properties
from bench.tree import ProcessTree
from mm2py.devkit.process import LoggedProcess, start_process


GRACE_S = 15.0


@attrs.define(eq=False)
class MirrorFailedError(Exception):
    """A candidate ended, stood still, or copied wrongly; the run does not count."""

    candidate: str
    detail: str
    log_tail: str = ""

    def __str__(self) -> str:
        return f"{self.candidate}: {self.detail}"


@attrs.frozen(eq=False)
class Mirror:
    """A running candidate."""

    candidate: Candidate
    process: LoggedProcess
    tree: ProcessTree
    started: float

    def check(self) -> None:
        """Raise when the process is gone."""
        if not self.process.is_running:
            raise self.failed(f"ended with exit code {self.process.exit_code}")

    def failed(self, detail: str) -> MirrorFailedError:
        """An error that carries the end of the process's log."""
        return MirrorFailedError(self.candidate.value, detail, self.process.log_warnings())


@contextlib.asynccontextmanager
async def running(candidate: Candidate, flow: FlowSettings, directory: Path) -> AsyncIterator[Mirror]:
    """Start *candidate* on *flow*; at the end ask it to stop, then insist."""
    async with running_on(candidate, candidate.properties(flow), directory) as mirror:
        yield mirror


@contextlib.asynccontextmanager
async def running_on(
    candidate: Candidate,
    settings: dict[str, str],
    directory: Path,
    *,
    grace_s: float = GRACE_S,
    profile: Path | None = None,
    module: str = MODULE,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Mirror]:
    """
    Start *candidate* on *settings* in a new *directory*, where its ``log`` is; at the end stop it, or insist.

    Our candidates run *module*, by which a benchmark may watch them. A *profile* is written of their own process.
    """
    file = await asyncio.to_thread(_write, directory, as_properties(settings))
    started = time.monotonic()
    process = start_process(
        candidate.value,
        candidate.command(file, profile, module),
        log_file=directory / "log",
        cwd=directory,
        env={**candidate.environment(), **environment},
    )
    tree = ProcessTree(process.pid)
    try:
        yield Mirror(candidate, process, tree, started)
    finally:
        tree.cpu()  # remember every member before the first of them goes
        await asyncio.to_thread(process.terminate, grace_s)
        tree.kill()


def _write(directory: Path, properties: str) -> Path:
    directory.mkdir(parents=True)
    file = directory / "mm2.properties"
    file.write_text(properties)
    return file
