"""What happens to the daemon and its Spark."""

from __future__ import annotations

import attrs

from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class DaemonStarted(Event):
    """The properties file was read and the flows of this node are about to start."""

    version: str
    pid: int
    flows: tuple[str, ...]
    heartbeats_only: tuple[str, ...] = ()


@attrs.frozen
class SettingNoted(Event):
    """The properties file holds something that works, but not as its author may think."""

    level = Level.WARN

    note: str


@attrs.frozen
class SettingsReloaded(Event):
    """The properties file was read again; flows that changed were drained and restarted, others went on."""

    path: str
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    took_s: float
    is_drained: bool


@attrs.frozen
class SettingsRefused(Event):
    """The properties file was read again and cannot be used; everything goes on with the settings it had."""

    level = Level.ERROR

    path: str
    problems: tuple[str, ...]


@attrs.frozen
class RestartNeeded(Event):
    """The properties file was read again; these keys changed and will count when the daemon is restarted."""

    level = Level.WARN

    keys: tuple[str, ...]


@attrs.frozen
class DaemonDraining(Event):
    """Somebody asked the daemon to stop; epochs end now and positions are written."""

    reason: str
    within_s: float


@attrs.frozen
class DaemonStopped(Event):
    """All flows are down and Spark is stopped."""

    drain_s: float
    is_drained: bool


@attrs.frozen
class SparkStarted(Event):
    """Spark takes epochs. `warm_up_s` is its first job's share of the wait."""

    master: str
    start_s: float
    warm_up_s: float
    ui: str


@attrs.frozen
class SparkEnded(Event):
    """Spark's JVM is gone; it is started again if the daemon goes on."""

    level = Level.WARN

    reason: str


@attrs.frozen
class SparkHung(Event):
    """Spark does nothing any more; its JVM and all below it are killed, so its epochs are lost, and it restarts."""

    level = Level.ERROR

    reason: str
    hint: str = "look at the memory of this host, and whether somebody stopped the process (SIGSTOP, a debugger)"


@attrs.frozen
class DaemonStoodStill(Event):
    """This process did nothing for a while: it was stopped, its machine was paused, or something blocked it."""

    level = Level.WARN

    stood_still_s: float
    hint: str = "look for a pause of the machine, for want of CPU or memory, or for a plugin that blocks"


@attrs.frozen
class SparkLogged(Event):
    """A line from Spark's own log, at WARN or above, or from a Python worker's stderr."""

    level = Level.WARN

    line: str
