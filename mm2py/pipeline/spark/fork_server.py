"""
The process that Spark forks Python workers from, on embedded Spark.

Spark's own daemon forks first and imports afterwards, so each worker spends a second of CPU and its own memory on the
same modules. This one imports them once; workers are ready in milliseconds and share the pages. Spark names the
module with ``spark.python.daemon.module``; on a cluster its own daemon does the same job more slowly.
"""

from __future__ import annotations

import gc
import importlib
import socket
import sys
from collections.abc import Callable

from pyspark import daemon


#: What most tasks need; a comparison imports its own.
_TASKS = ("mm2py.pipeline.copy.spark_task", "mm2py.pipeline.transform.spark_task")


def serve() -> None:
    """Import what workers need, then fork a worker for each request, until Spark ends."""
    worker_module = sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"
    for module in (worker_module, *_TASKS):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    daemon.worker = work_quietly
    daemon.manager()


_Work = Callable[[socket.socket, bool], int]


def work_quietly(sock: socket.socket, authenticated: bool, work: _Work = daemon.worker) -> int:  # noqa: FBT001 - Spark's form
    """Do what pyspark's worker does, but say nothing where Spark hung up: it does so when a task has failed."""
    try:
        return work(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    serve()
