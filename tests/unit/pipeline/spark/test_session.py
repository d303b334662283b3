"""How Spark's start fails."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import pytest

from mm2py.pipeline.spark import session
from mm2py.pipeline.spark.session import SparkStartError
from mm2py.pipeline.spark.settings import spark_settings


def test_a_warning_is_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why Spark did not start is what it was refused for, not what its JVM happened to warn of before."""
    warned = threading.Event()

    def launch(_conf: object, popen_kwargs: Any) -> Any:
        os.write(popen_kwargs["stderr"], b"WARN Elsewhere: the moon is full\n")
        return SimpleNamespace(proc=SimpleNamespace(stdin=None, wait=lambda _within_s: 1), shutdown=lambda: None)

    def refuse(**_arguments: object) -> Never:
        assert warned.wait(10)
        raise OSError("no more threads")

    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(session, "SparkContext", refuse)
    settings = spark_settings({}, copy_tasks=1, python="", package_parent="", log_file="/x", scratch=str(tmp_path))

    with pytest.raises(SparkStartError, match="no more threads"):
        session._open(settings, tmp_path, lambda _line: warned.set(), threading.Event())
