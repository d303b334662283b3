"""Commands of ``mm2py`` as a user types them, and programs that stand in for those that we run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from tests.support.eventually import scaled


_ROOT = Path(__file__).parents[2]
#: Spark may have to come up first, on a machine that other tests use too.
_WITHIN_S = 200.0


async def run_mm2py(*words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``mm2py …`` to its end; *env* is added to our own environment."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "mm2py", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        check=False,
        capture_output=True,
        text=True,
        timeout=scaled(_WITHIN_S),
    )


@contextmanager
def unread_output() -> Iterator[None]:
    """Have standard output be a pipe whose reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream, redirect_stdout(stream):
        yield


def fake_program(folder: Path, name: str, script: str = "") -> Path:
    """Put a program of shell into a folder, to be found on a PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program
