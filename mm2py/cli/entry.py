"""Where installed commands begin. It loads nothing by itself, so that Ctrl-C ends them without a traceback while they
still load, which takes a second or more.
"""

from __future__ import annotations

import importlib

from mm2py.cli.exit_code import ExitCode


def mm2py() -> int:
    return _run("main")


def connect_mirror_maker() -> int:
    return _run("mirror_maker")


def connect_standalone() -> int:
    return _run("standalone")


def connect_distributed() -> int:
    return _run("distributed")


def mirus_worker_start() -> int:
    return _run("distributed", "mirus_worker_start")


def kafka_mirror_maker() -> int:
    return _run("mirror_maker_1")


def _run(module: str, function: str = "main") -> int:
    try:
        return int(getattr(importlib.import_module(f"mm2py.cli.{module}"), function)())
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
