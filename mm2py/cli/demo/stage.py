"""The demo's set-up: two clusters of one broker each, and a mirror between them, in one temporary folder. All of it is
removed at the end, including files, however the demo ends. Blocking throughout, like the devkit.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import attrs

import mm2py
from mm2py.devkit.broker import KafkaCluster, start_clusters
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import LoggedProcess, start_process
from mm2py.errors import Mm2Error


SOURCE, TARGET = "primary", "backup"

_STOP_GRACE_S = 30.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@attrs.define(eq=False)
class MirrorEndedError(Mm2Error):
    """The mirror ended by itself, or never started to copy."""

    hint: ClassVar[str] = "its log is below"

    cause: str
    log_tail: str

    def __str__(self) -> str:
        return f"the mirror {self.cause}; {self.hint}\n{self.log_tail}"


@attrs.define(eq=False)
class BrokerEndedError(Mm2Error):
    """A broker ended by itself: its disk is full, or the machine has no memory left."""

    hint: ClassVar[str] = "the broker's own words are below"

    cluster: str
    exit_code: int | None
    words: str

    def __str__(self) -> str:
        return f"the broker of cluster {self.cluster} ended with exit code {self.exit_code}; {self.hint}\n{self.words}"


class Stage:
    """Two clusters and a mirror; a context manager that stops whatever was started."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="mm2py-demo-"))
        self.source, self.target = (
            KafkaCluster(alias, work_dir=self.directory / "clusters") for alias in (SOURCE, TARGET)
        )
        (port,) = free_ports(1)
        self.properties_file = self.directory / "mm2.properties"
        self.status_file = self.directory / "status.json"
        self.log_file = self.directory / "mm2.log"
        #: Where the mirror's status page and REST interface are.
        self.page = f"http://{HOST}:{port}"
        self._mirror: LoggedProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _uninterrupted():
            self.stop_mirror()
            for cluster in (self.source, self.target):
                cluster.stop()
            shutil.rmtree(self.directory, ignore_errors=True)

    def start_clusters(self) -> None:
        """Start both clusters side by side."""
        start_clusters([self.source, self.target])

    def start_mirror(self, tasks_max: int) -> None:
        """Start the mirror as an operator would, with a file of settings."""
        self.properties_file.write_text(self._properties(tasks_max))
        command = [
            sys.executable,
            *("-m", "mm2py.cli.mirror_maker", str(self.properties_file)),
            *("--clusters", TARGET, "--status-file", str(self.status_file)),
        ]
        packages = os.pathsep.join(filter(None, [str(Path(mm2py.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        self._mirror = start_process(
            "the mirror",
            command,
            log_file=self.log_file,
            env={"PYTHONPATH": packages, "TMPDIR": str(self.directory), "SPARK_LOCAL_DIRS": str(self.directory)},
            cwd=self.directory,
        )

    def stop_mirror(self) -> int | None:
        """Ask the mirror to drain and end; return its exit code, None if it is not running."""
        if self._mirror is None:
            return None
        return self._mirror.terminate(_STOP_GRACE_S)

    def check(self) -> None:
        """Raise `BrokerEndedError` or `MirrorEndedError` if a broker or the mirror is no longer running."""
        for cluster in (self.source, self.target):
            if not cluster.is_running(0):
                raise BrokerEndedError(cluster.name, cluster.exit_code(0), "\n".join(cluster.warnings(10).values()))
        if self._mirror is not None and not self._mirror.is_running:
            raise self.mirror_error(f"ended with exit code {self._mirror.exit_code}")

    def mirror_error(self, cause: str) -> MirrorEndedError:
        """Return the error that describes what happened, with the end of the mirror's log."""
        return MirrorEndedError(cause, self._mirror.log_tail(15) if self._mirror else "")

    def _properties(self, tasks_max: int) -> str:
        return f"""\
# Two clusters of one broker each, and one flow between them.
clusters = {SOURCE}, {TARGET}
{SOURCE}.bootstrap.servers = {self.source.bootstrap_servers}
{TARGET}.bootstrap.servers = {self.target.bootstrap_servers}

{SOURCE}->{TARGET}.enabled = true
tasks.max = {tasks_max}
refresh.topics.interval.seconds = 5
# The groups' offsets are kept in step at the target, ready for a move.
sync.group.offsets.enabled = true
refresh.groups.interval.seconds = 5
emit.checkpoints.interval.seconds = 5
sync.group.offsets.interval.seconds = 5
# Shorter than the default, so that the figures on the screen are fresh.
copy.epoch.ms = 2000

# There is one broker to hold each replica.
replication.factor = 1
offset.storage.replication.factor = 1
heartbeats.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1

# The status page, and REST below it.
listeners = {self.page}

# The demo reads the mirror's log: one JSON object a line, one line for each epoch.
log.format = json
log.level = debug
"""


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Make a second Ctrl-C wait until everything is removed."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
