"""
Processes of our own making: each has a log file, is signalled by the process id it was started with, and ends with us.

The kernel ties a child's life to the *thread* that started it, so every process is started by one thread that lives
as long as this interpreter. A cluster started from `asyncio.to_thread` therefore survives that thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from mm2py.devkit import leash


_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="devkit-spawner")

#: A process that was sent SIGKILL is gone after this, or the machine has other problems.
_KILL_WAIT_S = 30.0


@attrs.frozen(eq=False)
class LoggedProcess:
    """One running command; what it prints goes to its log file."""

    name: str
    log_file: Path
    _popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when a signal ended it."""
        return self._popen.poll()

    def wait(self, within_s: float) -> int:
        """Wait for the end; `TimeoutError` when it does not come."""
        try:
            return self._popen.wait(within_s)
        except subprocess.TimeoutExpired as error:
            message = f"{self.name} (pid {self.pid}) still runs after {within_s:g} s"
            raise TimeoutError(message) from error

    def terminate(self, grace_s: float = 15.0) -> int:
        """Ask for a clean end, insist with SIGKILL after *grace_s*; give the exit code."""
        self.signal(signal.SIGTERM)
        self.resume()
        try:
            return self.wait(grace_s)
        except TimeoutError:
            return self.kill()

    def kill(self) -> int:
        """End it with SIGKILL and wait until it is gone."""
        self.signal(signal.SIGKILL)
        return self.wait(_KILL_WAIT_S)

    def pause(self) -> None:
        """Freeze it; its connections stay open without answers."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a frozen process."""
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        self._popen.send_signal(number)

    def log_text(self) -> str:
        """Return everything it printed so far."""
        return self.log_file.read_text(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines it printed."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def log_warnings(self, lines: int = 40) -> str:
        """Return the last lines that are more than information: warnings and errors, of Java's without their frames."""
        told = [it for it in self.log_text().splitlines() if " INFO " not in it and not it.lstrip().startswith("at ")]
        return "\n".join(told[-lines:])


def start_process(
    name: str,
    command: Sequence[str],
    *,
    log_file: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> LoggedProcess:
    """Start *command* with its output appended to *log_file*; *env* is added to our own environment."""
    leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *command]

    def spawn() -> subprocess.Popen[bytes]:
        with log_file.open("ab") as log:
            return subprocess.Popen(
                leashed,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,  # Ctrl-C on the terminal is for us alone; we end our processes ourselves
            )

    return LoggedProcess(name, log_file, _SPAWNER.submit(spawn).result())
