"""The process and its Spark."""

from __future__ import annotations

import attrs

from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class DaemonStarted(Event):
    """
    The properties file was read, and the flows of this node are starting.

    The flows in `heartbeats_only` are not enabled and only write heartbeats.
    """

    version: str
    pid: int
    flows: tuple[str, ...]
    heartbeats_only: tuple[str, ...] = ()


@attrs.frozen
class SettingNoted(Event):
    """
    A line of the properties file is accepted, but may not do what is intended: its key is unknown, or has no effect.

    What to do: read `note`, and correct or remove the line.
    """

    level = Level.WARN

    note: str


@attrs.frozen
class SettingsReloaded(Event):
    """
    The properties file was read again. Only connectors whose settings changed restart.

    `added`, `changed`, `removed` and `unchanged` name flows. `is_drained` is false if one of them did not drain in
    time.
    """

    path: str
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    took_s: float
    is_drained: bool


@attrs.frozen
class SettingsRefused(Event):
    """
    The properties file was read again and has problems. Everything continues with the previous settings.

    What to do: correct `problems` in the file, and reload it.
    """

    level = Level.ERROR

    path: str
    problems: tuple[str, ...]


@attrs.frozen
class RestartNeeded(Event):
    """
    The properties file was read again, and has changes that take effect only when the daemon is restarted.

    What to do: restart the daemon when it suits you. `keys` names what changed.
    """

    level = Level.WARN

    keys: tuple[str, ...]


@attrs.frozen
class DaemonDraining(Event):
    """
    The daemon was asked to stop: epochs end, and positions are written.

    This takes at most `within_s`.
    """

    reason: str
    within_s: float


@attrs.frozen
class DaemonStopped(Event):
    """
    All flows have ended, and Spark is stopped.

    `is_drained` is false if something did not end in time, or an epoch was lost (`copy_task_lost`). No record is lost
    then either.

    What to do: if `is_drained` is false, start mm2py again before you start Java MirrorMaker, which would repeat what
    was copied after the last positions.
    """

    drain_s: float
    is_drained: bool


@attrs.frozen
class StatusFileFailed(Event):
    """
    The status file could not be written. The write is tried again each second, and the mirror continues.

    What to do: see `error`. The disk may be full, or the folder of `path` was removed.
    """

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
    """
    Spark accepts epochs.

    `ui` is the address of its UI, and `warm_up_s` is the part of the start that its first job took.
    """

    master: str
    start_s: float
    warm_up_s: float
    ui: str


@attrs.frozen
class SparkEnded(Event):
    """
    Spark's JVM has ended, or cannot be used any more. It is restarted if the daemon continues.

    `reason` says how it was noticed.

    What to do: if no `spark_hung` precedes it, the JVM was killed or ran out of memory. Compare `spark.driver.memory`
    and [what a node needs](sizing.md#memory) with the memory of the host or container.
    """

    level = Level.WARN

    reason: str


@attrs.frozen
class SparkHung(Event):
    """
    Spark's JVM did not respond, or did not end an epoch that is late. The JVM and all its child processes are killed,
    its epochs are lost, and Spark restarts.

    What to do: check the memory of the host, and whether the process was stopped (SIGSTOP, a debugger).
    """

    level = Level.ERROR

    reason: str
    hint: str = "check the memory of this host, and whether the process was stopped (SIGSTOP, a debugger)"


@attrs.frozen
class DaemonStoodStill(Event):
    """
    This process did nothing for a while: it was stopped, its machine was paused, or something blocked it. Deadlines of
    epochs are extended accordingly.

    What to do: look for pauses of the machine, CPU starvation, lack of memory, or a plugin that blocks.
    """

    level = Level.WARN

    stood_still_s: float
    hint: str = "check for pauses of the machine, CPU starvation, lack of memory, or a blocking plugin"


@attrs.frozen
class ConnectionsNotAccepted(Event):
    """
    A listener of this process cannot accept connections, because too many files are open in the process or in the
    system. The mirror continues, and accepting is tried again each second.

    `open_files_max` is the limit of the process. Logged again if the shortage returns after a minute or more.

    What to do: raise `ulimit -n` (`LimitNOFILE=` of a systemd unit), and restart.
    """

    level = Level.WARN

    error: str
    #: How many files this process may have open.
    open_files_max: int
    hint: str = "raise the limit of open files (ulimit -n; LimitNOFILE= of a systemd unit), and restart"


@attrs.frozen
class SparkLogged(Event):
    """
    A line from Spark's own log at WARN or above, or from a Python worker's stderr.

    Of a Python traceback it is the error and its place. Failures of a transform are not logged here but by
    `partition_stopped`, `partition_interrupted` or `record_left_out`.

    What to do: nothing, unless other events come with it.
    """

    level = Level.WARN

    line: str
