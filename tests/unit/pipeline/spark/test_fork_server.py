"""Workers that embedded Spark forks."""

from __future__ import annotations

import socket

import pytest

from mm2py.pipeline.spark.fork_server import unpacked_first, work_quietly


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "reset")])
def test_a_spark_that_hung_up_is_no_news(error: OSError) -> None:
    """The task has failed, which Spark knows; the worker ends without a stack."""

    def work(_sock: socket.socket, _authenticated: bool) -> int:
        raise error

    with socket.socket() as sock:
        assert work_quietly(work, sock, authenticated=True) == 1


def test_any_other_error_is_told() -> None:
    """What a worker cannot do for another reason goes on to who prints it."""

    def work(_sock: socket.socket, _authenticated: bool) -> int:
        raise ImportError("pyarrow")

    with socket.socket() as sock, pytest.raises(ImportError, match="pyarrow"):
        work_quietly(work, sock, authenticated=True)


def test_pyspark_is_taken_from_its_folder() -> None:
    """Spark names the archives in it first. Without the folder they are needed."""
    lib, jar = "/venv/site-packages/pyspark/python/lib", "/venv/site-packages/pyspark/jars/spark-core.jar"
    archives = [f"{lib}/pyspark.zip", f"{lib}/py4j-0.10-src.zip", jar]

    with_folder = unpacked_first([*archives, "/app", "/venv/site-packages", "/other/lib.zip"])
    without = unpacked_first([*archives, "/app"])

    assert with_folder == ["/app", "/venv/site-packages", "/other/lib.zip", f"{lib}/py4j-0.10-src.zip"]
    assert without == [*archives, "/app"]
