"""The demo as a user runs it: real clusters, a real mirror, every record compared, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from mm2py.devkit.process import LoggedProcess, start_process
from tests.support.daemon import still_running
from tests.support.eventually import eventually, scaled


ROOT = Path(__file__).parents[2]
START_LIMIT_S = 120.0
#: As the README has it.
SCRIPT, ENV = str(ROOT / "scripts/demo"), {"MM2PY_VENV": sys.prefix}


@asynccontextmanager
async def demo(work_dir: Path, command: Sequence[str], env: Mapping[str, str]) -> AsyncIterator[LoggedProcess]:
    """Run the demo with its temporary files in *work_dir*; nothing it started outlives the block."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    (work_dir / "tmp").mkdir()
    process = await asyncio.to_thread(
        start_process,
        "the demo",
        command,
        log_file=work_dir / "demo.out",
        env={"PYTHONPATH": path, "TMPDIR": str(work_dir / "tmp"), **env},
        cwd=work_dir,
    )
    try:
        yield process
    finally:
        below = psutil.Process(process.pid).children(recursive=True) if process.is_running else []
        await asyncio.to_thread(process.kill)
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()


async def said(process: LoggedProcess, pattern: str) -> re.Match[str]:
    """Wait until the demo prints a line with *pattern*."""

    def found() -> re.Match[str] | None:
        is_running = process.is_running
        match = re.search(pattern, process.log_text())
        if match is None and not is_running:
            message = f"the demo ended with {process.exit_code}:\n{process.log_text()}"
            raise RuntimeError(message)
        return match

    return await eventually(found, within_s=START_LIMIT_S, what=f"the demo prints {pattern}")


async def all_gone(processes: list[psutil.Process]) -> None:
    """Wait until none of the processes runs: those killed last may still be ending."""

    def none_left() -> bool:
        left = still_running(processes)
        assert not left, left
        return True

    await eventually(none_left, within_s=5, what="every process that it started has ended")


async def ended(process: LoggedProcess) -> int:
    return await asyncio.to_thread(process.wait, scaled(START_LIMIT_S))


async def test_it_mirrors_a_stream_and_proves_it(tmp_path: Path) -> None:
    """The demo ends with all records verified, its figures printed as plain lines, and every process and file gone."""
    async with demo(tmp_path, [SCRIPT, "--seconds", "4", "--rate", "2000"], ENV) as process:
        await said(process, r"mirrored, [\d,]+ records/s")
        below = psutil.Process(process.pid).children(recursive=True)
        exit_code = await ended(process)
        proof = await said(process, r"VERIFIED: 3 topics, 12 partitions, ([\d,]+) records: .* none missing, none twice")
        text = process.log_text()

    assert exit_code == 0, text
    assert int(proof[1].replace(",", "")) >= 8_000
    assert re.search(r"lag [\d,]+, latency p50", text)
    assert "exit code 0" in text
    assert below
    await all_gone(below)
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_interrupted_it_leaves_nothing_behind(tmp_path: Path) -> None:
    """A terminal that is closed in the middle of the stream takes everything down, and every file is removed."""
    async with demo(tmp_path, [SCRIPT, "--seconds", "600", "--rate", "500"], ENV) as process:
        await said(process, "primary->backup running")
        below = psutil.Process(process.pid).children(recursive=True)
        process.signal(signal.SIGHUP)
        exit_code = await ended(process)
        text = process.log_text()

    assert exit_code == 130, text
    assert text.endswith("Interrupted; everything is stopped and removed.\n")
    await all_gone(below)
    assert list((tmp_path / "tmp").iterdir()) == []
