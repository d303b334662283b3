"""
Which settings Spark is started with.

Ours make it small and quick at an epoch's boundary; the user's ``spark.`` settings take precedence. Decisions
only: nothing is started here.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from mm2py.pipeline.spark.fork_server import IMPORTS


#: As small as Spark's memory manager lets the driver be, and a quarter of what the JVM would take by itself.
_DRIVER_MEMORY = "512m"
_SERIAL_GC = "-XX:+UseSerialGC"
_QUICK_START = "-XX:TieredStopAtLevel=1"
_TEMP = "-Djava.io.tmpdir="
_HOME = "-Duser.home="
_SOCKETS = "spark.python.unix.domain.socket"
#: Spark refuses a longer one, and with it every job: of the 107 bytes of a path it keeps 46 for the name.
_LONGEST_SOCKET_DIR = 61
#: Where `class_archive` looks.
CLASSES = Path(sys.prefix, "var", "mm2py")
#: Spark's own idea of a secret (spark.redaction.regex), and a little more.
_SECRET_NAME = re.compile(r"secret|password|token|access[.]?key|credential|private", re.IGNORECASE)
_LOCAL_MASTER = re.compile(r"local(\[.*\])?", re.ASCII)

#: Where embedded Spark listens.
LOOPBACK: Final = "127.0.0.1"
#: What workers need for statements and functions, beside what all need; it imports pyarrow.
_SQL_TASKS: Final = "mm2py.pipeline.transform.sql.spark_task"

_OURS = {
    "spark.app.name": "mm2py",
    "spark.driver.memory": _DRIVER_MEMORY,
    # Between JVM and Python worker TCP waits for delayed ACKs: 45 ms a job.
    f"{_SOCKETS}.enabled": "true",
    "spark.python.worker.reuse": "true",
    # SQL sets this for its workers; those of another environment are forked from another process, with its own imports.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    # The daemon plans a lost epoch again, and only when the lost one can no longer write.
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    # Each epoch is a line there with its numbers. It costs 8 MiB and takes whatever port is free.
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without it Spark's own view of a job is late, and a running epoch seems to wait for a slot.
    "spark.ui.liveUpdate.period": "0",
    # Every epoch is a job; Spark would remember the last thousand of them.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "100",
    # The plan of an epoch that is larger would be written to a file, which stays there for as long as Spark runs.
    "spark.broadcast.UDFCompressionThreshold": "1g",
}

#: On embedded Spark only: no name look-ups, and workers forked from a process that has imported everything.
_OURS_EMBEDDED = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.python.daemon.module": "mm2py.pipeline.spark.fork_server",
    # A statement that Java has no memory for fails. Else it ends the JVM, and with it the epochs of all other topics.
    "spark.executor.killOnFatalError.depth": "0",
}


@attrs.frozen
class SparkSettings:
    """Everything Spark is started with. `slots` is None where the cluster manager decides."""

    master: str
    slots: int | None
    conf: tuple[tuple[str, str], ...]
    python: str

    @property
    def is_embedded(self) -> bool:
        return self.slots is not None

    @property
    def is_on_this_machine(self) -> bool:
        """Whether every task runs on this machine, as this user."""
        return self.is_embedded or self.master.startswith("local-cluster[")

    @property
    def shown_conf(self) -> tuple[tuple[str, str], ...]:
        """What may stand among a process's arguments: all but what Spark itself would keep from its page."""
        return tuple((key, value) for key, value in self.conf if _SECRET_NAME.search(key) is None)


def class_archive(folder: Path | None = None) -> str:
    """
    Return the archive that `pipeline.spark.class_archive` made for this Python's pyspark; nothing where there is none.

    Its name tells its size. Java looks for itself whether it is of these jars, but one that was cut off makes it crash.
    """
    for found in sorted((folder or CLASSES).glob("spark-*.jsa")):
        if found.stem == f"spark-{found.stat().st_size}":
            return str(found)
    return ""


def spark_settings(
    user: Mapping[str, str],
    *,
    copy_tasks: int,
    python: str,
    package_parent: str,
    log_file: str,
    scratch: str,
    archive: str = "",
    java_environment: str = "",
    uses_sql: bool = False,
    has_account: bool = True,
) -> SparkSettings:
    """
    Put the user's ``spark.*`` keys over ours.

    On a cluster as many cores are asked for as there are copy tasks. ``local[*]`` becomes as many slots as there are
    copy tasks, and one for what is asked in between: an embedded slot is a thread, so the number of cores says nothing
    about how many copy tasks may wait for the network at the same time, and a spare one costs nothing. Spark keeps its
    files in *scratch*, which goes away with us, even if it is killed. The driver's JVM takes its classes from
    *archive*, where one is named. *java_environment* are the options that it takes from the environment. *uses_sql* is
    whether any flow has a statement or function. A user that *has_account* has a home; for one that is a mere
    number, as in a container, Java finds none, and Spark does not start.
    """
    asked_master = user.get("spark.master", "local[*]")
    slots = _embedded_slots(asked_master, copy_tasks + 1)
    master = f"local[{slots}]" if asked_master == "local[*]" else asked_master
    if slots is not None:
        defaults = _OURS | _OURS_EMBEDDED | {"spark.local.dir": scratch}
        defaults |= {f"spark.executorEnv.{IMPORTS}": _SQL_TASKS} if uses_sql else {}
        has_sockets = len(os.fsencode(scratch)) <= _LONGEST_SOCKET_DIR
        defaults |= {f"{_SOCKETS}.dir": scratch} if has_sockets else {f"{_SOCKETS}.enabled": "false"}
    else:
        defaults = _OURS | {"spark.cores.max": str(max(1, copy_tasks))}
    conf = defaults | dict(user) | {"spark.master": master}
    java_options = user.get("spark.driver.extraJavaOptions", "")
    conf["spark.driver.extraJavaOptions"] = _java_options(java_options, log_file, archive)
    for option in (_TEMP,) if has_account else (_TEMP, _HOME):
        if option not in f"{java_options} {java_environment}":
            conf["spark.driver.extraJavaOptions"] += f" {option}{shlex.quote(scratch)}"
    if slots is not None:
        conf["spark.executorEnv.PYTHONPATH"] = _joined(package_parent, user.get("spark.executorEnv.PYTHONPATH"))
    return SparkSettings(master, slots, tuple(sorted(conf.items())), user.get("spark.pyspark.python", python))


def with_retries(user: Mapping[str, str], *, slots: int, failures: int) -> dict[str, str]:
    """
    Have Spark run a task again that failed, up to *failures* times, for jobs that may be done twice.

    Embedded Spark goes by its master alone, and never tries again where that does not name a number.
    """
    master = user.get("spark.master", "local[*]")
    found = _embedded_slots(master, slots)
    if found is not None and "," not in master:
        master = f"local[{found},{failures}]"
    return {"spark.task.maxFailures": str(failures), **user, "spark.master": master}


def _embedded_slots(master: str, copy_tasks: int) -> int | None:
    if not _LOCAL_MASTER.fullmatch(master):
        return None
    if master == "local":
        return 1
    threads = master.removeprefix("local[").removesuffix("]").split(",")[0].strip()
    return int(threads) if threads.isdigit() else max(1, copy_tasks)


def _java_options(user_options: str, log_file: str, archive: str) -> str:
    # Spark splits them as a shell does: a path may have blanks.
    options = [_QUICK_START]
    if archive and not re.search(r"-XX:(SharedArchiveFile|ArchiveClassesAtExit)=|-Xshare:", user_options):
        # That it does not fit any more is no news for the log: Spark only starts more slowly.
        options += [f"-XX:SharedArchiveFile={shlex.quote(archive)}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if not re.search(r"-XX:\+Use\w+GC\b", user_options):
        options.append(_SERIAL_GC)
    if "-Dlog4j2.configurationFile" not in user_options:
        options.append(f"-Dlog4j2.configurationFile={Path(log_file).as_uri()}")
    return " ".join([*options, user_options]).strip()


def _joined(first: str, second: str | None) -> str:
    return f"{first}:{second}" if second else first
