"""Programs of Debian's that tests drive, such as Chromium: installed when a test first asks for them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mm2py.devkit.jars import cache_directory


_UPDATE_LIMIT_S = 300.0
_INSTALL_LIMIT_S = 900.0
#: How long to wait for another process's apt-get.
_APT = ("apt-get", "-o", "DPkg::Lock::Timeout=600")
_TAIL_LINES = 15


class ProgramMissingError(Exception):
    """A test needs a program that is not there and cannot be installed by it."""


def debian_program(package: str, *names: str) -> Path:
    """
    Return the path of one of the programs *names* (as a rule the package's own name), installing *package* if need be.

    Runs side by side wait for each other. It blocks: for minutes, where the network is slow. Raise ProgramMissingError,
    which says what to do, where there is no apt-get, no right to use it, or no such package.
    """
    wanted = names or (package,)
    found = _find(wanted)
    if found is None:
        with _alone():
            found = _find(wanted) or _install(package, wanted)
    return found


def _find(names: tuple[str, ...]) -> Path | None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/bin", "/usr/sbin"])
    return next((Path(found) for name in names if (found := shutil.which(name, path=path))), None)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock that is one for all packages: of two apt-get updates at a time, one fails."""
    folder = cache_directory()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(package: str, names: tuple[str, ...]) -> Path:
    by_hand = f"install it by hand: apt-get install --no-install-recommends {package}"
    if shutil.which("apt-get") is None:
        message = f"there is no {names[0]}, and no apt-get to install it with; {by_hand}, or your system's own way"
        raise ProgramMissingError(message)
    root = _root()
    if root is None:
        message = f"there is no {names[0]}, and neither root nor sudo without a password to install it; {by_hand}"
        raise ProgramMissingError(message)
    # Lists may be absent in an image or name versions that the mirror no longer has.
    updated = _run([*root, *_APT, "update"], within_s=_UPDATE_LIMIT_S)
    installed = _run([*root, *_APT, "install", "-y", "--no-install-recommends", package], within_s=_INSTALL_LIMIT_S)
    found = _find(names)
    if found is None:
        message = f"apt-get could not install {package}; {by_hand}. Its own words:\n{updated}\n{installed}"
        raise ProgramMissingError(message)
    return found


def _root() -> list[str] | None:
    """Return what makes a command root's: nothing, or sudo; None where there is no way."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None or subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode:
        return None
    return [sudo, "-n", "env", "DEBIAN_FRONTEND=noninteractive"]


def _run(line: list[str], *, within_s: float) -> str:
    """Run a command; return the end of what it said."""
    env: Mapping[str, str] = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            line, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=within_s
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(line)}: not done within {within_s:g} s"
    return "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL_LINES:])
