"""Events of the daemon and its Spark."""

from __future__ import annotations

import attrs

from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class DaemonStarted(Event):
    """The properties file was read and the flows of this node are starting."""

    version: str
    pid: int
    flows: tuple[str, ...]
    heartbeats_only: tuple[str, ...] = ()


@attrs.frozen
class SettingNoted(Event):
    """The properties file has a line that is accepted, but may not do what is intended."""

    level = Level.WARN

    note: str


@attrs.frozen
class SettingsReloaded(Event):
    """The properties file was reloaded; changed flows were drained and restarted, others continued."""

    path: str
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    took_s: float
    is_drained: bool


@attrs.frozen
class SettingsRefused(Event):
    """The properties file was reloaded and is invalid; everything continues with the previous settings."""

    level = Level.ERROR

    path: str
    problems: tuple[str, ...]


@attrs.frozen
class RestartNeeded(Event):
    """The properties file was reloaded; these changed keys take effect when the daemon is restarted."""

    level = Level.WARN

    keys: tuple[str, ...]


@attrs.frozen
class DaemonDraining(Event):
    """The daemon was asked to stop; epochs end now and positions are written."""

    reason: str
    within_s: float


@attrs.frozen
class DaemonStopped(Event):
    """All flows have ended and Spark is stopped."""

    drain_s: float
    is_drained: bool


@attrs.frozen
class StatusFileFailed(Event):
    """The status file could not be written, and is tried again each second; the mirror continues."""

    level = Level.WARN

    path: str
    error: str


@attrs.frozen
class StatusFileRecovered(Event):
    """The status file is written again."""

    path: str
    unwritten_s: float


@attrs.frozen
class SparkStarted(Event):
    """Spark accepts epochs. `warm_up_s` is the part of the start that its first job took."""

    master: str
    start_s: float
    warm_up_s: float
    ui: str


@attrs.frozen
class SparkEnded(Event):
    """Spark's JVM has ended, or is of no use any more; it is restarted if the daemon continues."""

    level = Level.WARN

    reason: str


@attrs.frozen
class SparkHung(Event):
    """Spark hangs; its JVM and all child processes are killed, its epochs are lost, and it restarts."""

    level = Level.ERROR

    reason: str
    hint: str = "check the memory of this host, and whether the process was stopped (SIGSTOP, a debugger)"


@attrs.frozen
class DaemonStoodStill(Event):
    """This process did nothing for a while: it was stopped, its machine was paused, or something blocked it."""

    level = Level.WARN

    stood_still_s: float
    hint: str = "check for pauses of the machine, CPU starvation, lack of memory, or a blocking plugin"


@attrs.frozen
class ConnectionsNotAccepted(Event):
    """A listener of this process cannot accept connections; the mirror continues, and it is tried again each second."""

    level = Level.WARN

    error: str
    #: How many files this process may have open.
    open_files_max: int
    hint: str = "raise the limit of open files (ulimit -n; LimitNOFILE= of a systemd unit), and restart"


@attrs.frozen
class SparkLogged(Event):
    """A line from Spark's own log, at WARN or above, or from a Python worker's stderr."""

    level = Level.WARN

    line: str
