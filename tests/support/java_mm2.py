"""The real Java MirrorMaker 2, for comparison: started from a properties file, watched through its log."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import attrs

from mm2py.devkit.java import SERVER_FLAGS, JvmOptions
from mm2py.devkit.process import LoggedProcess, start_process
from mm2py.errors import Mm2Error
from tests.support.eventually import scaled


#: Starting takes eight seconds on two cores; a loaded machine is given much more.
START_LIMIT_S = 120.0

_POLL_S = 0.1
_MAIN_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
_STARTED = re.compile(r"Kafka MirrorMaker started")


@attrs.define(eq=False)
class JavaMm2FailedError(Mm2Error):
    """Java MirrorMaker 2 ended, or did not say in its log what was waited for."""

    hint: ClassVar[str] = "its own words are below"

    cause: str
    log_file: str
    log_tail: str

    def __str__(self) -> str:
        return f"Java MirrorMaker 2: {self.cause}; {self.hint} (whole log: {self.log_file})\n{self.log_tail}"


class JavaMirrorMaker2:
    """One Java MirrorMaker 2 process; a context manager that starts it and ends it cleanly."""

    def __init__(
        self, properties_file: Path, *, log_file: Path, jvm: JvmOptions | None = None, clusters: tuple[str, ...] = ()
    ) -> None:
        """Without *jvm* it gets the flags of Kafka's own start script and half a GiB of heap."""
        self._properties_file = properties_file
        self._log_file = log_file
        self._jvm = jvm or JvmOptions(heap_mb=512, flags=SERVER_FLAGS)
        self._clusters = clusters
        self._process: LoggedProcess | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def start(self) -> None:
        """Start it and wait until it says that it has started; its connectors are configured after that."""
        self.launch()
        self.await_log(_STARTED)

    def launch(self) -> None:
        """Start it without waiting."""
        arguments = [str(self._properties_file)]
        if self._clusters:
            arguments += ["--clusters", *self._clusters]
        self._log_start = self._log_file.stat().st_size if self._log_file.exists() else 0
        command = self._jvm.command(_MAIN_CLASS, *arguments, scratch=self._log_file.parent)
        self._process = start_process("Java MirrorMaker 2", command, log_file=self._log_file)

    def await_replicating(self, source: str, target: str, *, within_s: float = START_LIMIT_S) -> None:
        """Wait until a copy task of the flow has got topic-partitions."""
        self.await_log(re.compile(rf"replicating \d+ topic-partitions {source}->{target}"), within_s=within_s)

    def await_log(self, pattern: re.Pattern[str], *, within_s: float = START_LIMIT_S) -> None:
        """Wait until *pattern* is found in what this run has printed."""
        process = self._running()
        deadline = time.monotonic() + scaled(within_s)
        while pattern.search(self.log_text()) is None:
            if not process.is_running:
                raise self._failed(process, f"it ended with exit code {process.exit_code}")
            if time.monotonic() > deadline:
                raise self._failed(process, f"no line matched {pattern.pattern!r} within {scaled(within_s):g} s")
            time.sleep(_POLL_S)

    def stop(self, grace_s: float = 60.0) -> int | None:
        """Ask it to end, as an operator would, and wait; return its exit code."""
        return self._process.terminate(scaled(grace_s)) if self._process else None

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process:
            self._process.kill()

    def log_text(self) -> str:
        """Return everything that this run has printed; earlier runs with the same log file are left out."""
        with self._log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines it printed."""
        return self._running().log_tail(lines)

    def _running(self) -> LoggedProcess:
        if self._process is None:
            message = "Java MirrorMaker 2 has not been started"
            raise RuntimeError(message)
        return self._process

    @staticmethod
    def _failed(process: LoggedProcess, cause: str) -> JavaMm2FailedError:
        return JavaMm2FailedError(cause, str(process.log_file), process.log_warnings())
