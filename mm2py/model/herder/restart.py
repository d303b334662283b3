"""
A restart, or a refresh, that an operator asks of any node of a flow, as it is written for the others to
``mm2-status.<source>.internal``.

Like the statuses there it is ignored by Java, and by nodes of earlier versions. It is carried out once, by those nodes
that read it while they run what it is about; what starts later has started again anyway.
"""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.model.foreign import read_versioned, refusing, whole, words, write_json


VERSION = 1
_KEY = "mm2py-restart-"


@attrs.frozen
class Restart:
    """
    A restart of a connector, or of one *task* of it. The flags are those of KIP-745; `by` is the operator.

    With `is_refresh` nothing restarts: the connector looks for new topics or groups at once. Earlier versions restart
    it without its tasks, which includes that.
    """

    connector: str
    task: int | None = None
    include_tasks: bool = False
    only_failed: bool = False
    by: str = ""
    is_refresh: bool = False


def restart_key(flow: Flow, restart: Restart) -> bytes:
    """Return the record key of a restart: a later one of the same connector or task replaces it."""
    of_task = "" if restart.task is None else f"/{restart.task}"
    return f"{_KEY}{flow}/{restart.connector}{of_task}".encode()


def is_restart_of(flow: Flow, key: bytes | None) -> bool:
    """Whether a record is a restart in *flow*."""
    return key is not None and key.startswith(f"{_KEY}{flow}/".encode())


def encode_restart(restart: Restart, node_id: str) -> bytes:
    """Return the record value, with the node that was asked."""
    value = {
        "version": VERSION,
        "node": node_id,
        "connector": restart.connector,
        "task": restart.task,
        "includeTasks": restart.include_tasks,
        "onlyFailed": restart.only_failed,
        "by": restart.by,
        "refresh": restart.is_refresh,
    }
    return write_json(value)


def decode_restart(value: bytes) -> tuple[Restart, str]:
    """Parse the output of `encode_restart`. Raise ValueError with the problem."""
    with refusing():
        content = read_versioned(value, VERSION)
        task = content["task"]
        restart = Restart(
            words(content["connector"]),
            None if task is None else whole(task),
            bool(content["includeTasks"]),
            bool(content["onlyFailed"]),
            words(content["by"]),
            bool(content.get("refresh", False)),
        )
        return restart, words(content["node"])
