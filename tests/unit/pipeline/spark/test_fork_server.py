"""Workers that embedded Spark forks."""

from __future__ import annotations

import socket

import pytest

from mm2py.pipeline.spark.fork_server import work_quietly


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "reset")])
def test_a_spark_that_hung_up_is_no_news(error: OSError) -> None:
    """The task has failed, which Spark knows; the worker ends without a stack."""

    def work(_sock: socket.socket, _authenticated: bool) -> int:
        raise error

    with socket.socket() as sock:
        assert work_quietly(sock, authenticated=True, work=work) == 1


def test_any_other_error_is_told() -> None:
    """What a worker cannot do for another reason goes on to who prints it."""

    def work(_sock: socket.socket, _authenticated: bool) -> int:
        raise ImportError("pyarrow")

    with socket.socket() as sock, pytest.raises(ImportError, match="pyarrow"):
        work_quietly(sock, authenticated=True, work=work)
