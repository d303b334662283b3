"""
The process that Spark forks Python workers from, on embedded Spark.

Spark's own daemon forks first and imports afterwards, so each worker spends a second of CPU and its own memory on the
same modules. This one imports them once; workers are ready in milliseconds and share the pages. Spark names the
module with ``spark.python.daemon.module``; on a cluster its own daemon does the same job more slowly.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final


#: Names further modules to import, separated by commas.
IMPORTS: Final = "MM2PY_WORKER_IMPORTS"
#: What most tasks need; a comparison imports its own.
_TASKS = ("mm2py.pipeline.copy.spark_task", "mm2py.pipeline.transform.spark_task")
#: What ends a process.
_ENDS: Final = (signal.SIGINT, signal.SIGTERM)
#: What writing to a Spark that hung up fails with.
_HUNG_UP: Final = (BrokenPipeError, ConnectionResetError)
#: What Spark puts first in the path of its workers: archives within the folder of pyspark, and one of its jars.
_ARCHIVE: Final = re.compile(r"/pyspark/(python/lib|jars)/(?P<name>[^/]+)\.(zip|jar)")


def serve() -> None:
    """Import what workers need, then fork a worker for each request, until Spark ends."""
    sys.path[:] = unpacked_first(sys.path)
    sys.path_importer_cache.clear()
    daemon: Any = importlib.import_module("pyspark.daemon")
    worker_module = sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"
    for module in (worker_module, *_TASKS, *filter(None, os.environ.get(IMPORTS, "").split(","))):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    outlive_ends(daemon)
    daemon.worker = functools.partial(work_quietly, daemon.worker)
    daemon.manager()


def outlive_ends(daemon: Any) -> None:
    """
    Have this process and its workers, which pyspark's *daemon* forks, outlive SIGINT and SIGTERM.

    A process manager may send them to all processes, and the daemon's drain needs the workers. Spark, too, ends this
    process with SIGTERM, but closes its stdin as well, which is enough. A signal that is blocked or ignored would be so
    for the programs that a user's function starts, too; a handler of Python's is only for this one. What a worker forks
    inherits that: see `let_forks_end`.
    """
    for number in _ENDS:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)  # noqa: FBT003 - it has no name
    # Each worker would set them to what they are by default.
    daemon.signal = SimpleNamespace(**{**vars(signal), "signal": _set_other})


@functools.cache
def let_forks_end() -> None:
    """
    Have what this worker forks heed both signals again.

    A `multiprocessing.Pool` ends its processes with SIGTERM, and waits for them, without end if they outlive it. One
    that comes to a process which has just been forked waits until it is heeded there.
    """
    hold = functools.partial(signal.pthread_sigmask, signal.SIG_BLOCK, _ENDS)
    os.register_at_fork(before=hold, after_in_parent=_release, after_in_child=_heed_ends)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def _heed_ends() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()


def _set_other(number: signal.Signals, handler: Any) -> Any:
    return signal.getsignal(number) if number in _ENDS else signal.signal(number, handler)


def unpacked_first(paths: Sequence[str]) -> list[str]:
    """
    Return a path on which pyspark is taken from its folder, if that is on *paths*, and not from the archive in it.

    From an archive, which has no compiled modules, all of pyspark is compiled again at each start of Spark; and each
    worker reads the list of what is in it again, for each package that it has imported from there.
    """
    archives = {it: _ARCHIVE.fullmatch(it, max(0, it.rfind("/pyspark/"))) for it in paths}
    unpacked = [it for it, archive in archives.items() if archive is None]
    beside = {it: archive for it, archive in archives.items() if archive and it[: archive.start()] in unpacked}
    others = [it for it in paths if it not in beside]
    return [*others, *(it for it, archive in beside.items() if archive["name"].startswith("py4j"))]


def work_quietly(work: Callable[[socket.socket, bool], int], sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - Spark's form
    """Do what pyspark's worker does, but say nothing where Spark hung up: it does so when a task has failed."""
    let_forks_end()
    # What is left to be sent is tried once more when its file is collected: Python 3.13 and newer say that this failed.
    sys.unraisablehook = _say_unless_hung_up
    try:
        return work(sock, authenticated)
    except _HUNG_UP:
        return 1


def _say_unless_hung_up(unraisable: Any) -> None:
    if not isinstance(unraisable.exc_value, _HUNG_UP):
        sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    serve()
