"""Where installed commands begin. It loads nothing by itself, so that Ctrl-C ends them without a traceback while they
still load, which takes a second or more; a reload does not end what is to run a node.
"""

from __future__ import annotations

import codecs
import importlib
import io
import os
import signal
import sys

from mm2py.cli.exit_code import ExitCode


_INIT = 1
_ESCAPED = "mm2py-escaped"


def mm2py() -> int:
    return _run("main")


def connect_mirror_maker() -> int:
    return _run_node("mirror_maker")


def connect_standalone() -> int:
    return _run_node("standalone")


def connect_distributed() -> int:
    return _run_node("distributed")


def mirus_worker_start() -> int:
    return _run_node("distributed", "mirus_worker_start")


def kafka_mirror_maker() -> int:
    return _run_node("mirror_maker_1")


def hold_signals(*, is_held: bool) -> None:
    """
    Hold SIGHUP back until the node answers it, or not any more. By itself it would end this process, which systemd
    takes for one that ended well: a reload may come right after a start. The first process of a container does not end
    at a SIGTERM that it does not answer yet, so that is held back there, too.
    """
    held = {signal.SIGHUP, signal.SIGTERM} if os.getpid() == _INIT else {signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK if is_held else signal.SIG_UNBLOCK, held)


def _run_node(module: str, function: str = "main") -> int:
    hold_signals(is_held=True)
    return _run(module, function)


def _run(module: str, function: str = "main") -> int:
    try:
        codecs.register_error(_ESCAPED, _escaped)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors=_ESCAPED)
        return int(getattr(importlib.import_module(f"mm2py.cli.{module}"), function)())
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Escape what the terminal's encoding does not have as JSON does, so that output in that form can be read, too."""
    import json  # noqa: PLC0415

    assert isinstance(error, UnicodeEncodeError)  # noqa: S101 - what is printed
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
