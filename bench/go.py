"""Builds the mirror in Go, once for each state of its sources; its modules come from where `go` is told to get them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import attrs

from mm2py.devkit.jars import cache_directory, locked


SOURCES = Path(__file__).with_name("go_mirror")
#: Where Go's own archive puts it, which need not be on the PATH.
USUAL_PLACE = Path("/usr/local/go/bin/go")
BUILD_LIMIT_S = 600.0


@attrs.define(eq=False)
class GoUnusableError(Exception):
    """The Go mirror cannot be built."""

    detail: str
    output: str = ""

    def __str__(self) -> str:
        return f"the candidate go cannot be built: {self.detail}" + (f"\n{self.output}" if self.output else "")


def go_command(usual_place: Path = USUAL_PLACE) -> str:
    """Return the path of the Go command."""
    found = shutil.which("go") or shutil.which(str(usual_place))
    if found is None:
        raise GoUnusableError(f"there is no go on the PATH, nor {usual_place}; install Go, or leave the candidate out")
    return found


def binary(sources: Path = SOURCES) -> Path:
    """Return the mirror's binary in the cache, after building it if no one has."""
    cache = cache_directory()
    built = cache / f"go-mirror-{_fingerprint(sources)}"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f"{built.name}.lock"):
            if not built.exists():
                _build(sources, built)
    return built


def _fingerprint(sources: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(sources.iterdir()):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _build(sources: Path, built: Path) -> None:
    unfinished = built.with_name(f"{built.name}.{os.getpid()}")
    command = [go_command(), "build", "-trimpath", "-buildvcs=false", "-o", str(unfinished), "."]
    # Without C it runs wherever it is copied to.
    environment = {**os.environ, "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=sources, env=environment, timeout=BUILD_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GoUnusableError(str(error)) from error
    if done.returncode != 0:
        raise GoUnusableError(f"go build ended with {done.returncode}", done.stderr.strip())
    unfinished.replace(built)
