"""How Spark's start fails."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import pytest
from pyspark.errors import PySparkRuntimeError

from mm2py.pipeline.spark import session
from mm2py.pipeline.spark.session import JavaMissingError, SparkStartError
from mm2py.pipeline.spark.settings import spark_settings


def test_a_warning_is_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why Spark did not start is what it was refused for, not what its JVM happened to warn of before."""
    warned = threading.Event()

    def launch(_conf: object, popen_kwargs: Any) -> Any:
        os.write(popen_kwargs["stderr"], b"WARN Elsewhere: the moon is full\n")
        jvm = SimpleNamespace(stdin=None, wait=lambda *_within_s: 1, kill=lambda: None)
        return SimpleNamespace(proc=jvm, shutdown=lambda: None)

    def refuse(**_arguments: object) -> Never:
        assert warned.wait(10)
        raise OSError("no more threads")

    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(session, "SparkContext", refuse)
    settings = spark_settings({}, copy_tasks=1, python="", package_parent="", log_file="/x", scratch=str(tmp_path))

    with pytest.raises(SparkStartError, match="no more threads"):
        session._open(settings, tmp_path, lambda _line: warned.set(), threading.Event())


def test_a_jvm_that_ends_at_once_is_heard_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason is taken once it has been read, however quickly it is seen to have ended."""

    def launch(_conf: object, popen_kwargs: Any) -> Never:
        os.write(popen_kwargs["stderr"], b"java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(session, "launch_gateway", launch)
    settings = spark_settings({}, copy_tasks=1, python="", package_parent="", log_file="/x", scratch=str(tmp_path))

    with pytest.raises(JavaMissingError, match="is too old"):
        session._open(settings, tmp_path, lambda _line: None, threading.Event())
