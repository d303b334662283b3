"""Workers that embedded Spark forks."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

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


#: What pyspark's worker does for a task that has failed; then something else fails while it is collected.
_LEFT_UNSENT = """
import os, socket
from mm2py.pipeline.spark.fork_server import work_quietly

class Other:
    def __del__(self):
        raise ValueError("another")

def work(sock, authenticated):
    outfile = os.fdopen(os.dup(sock.fileno()), "wb", 65536)
    outfile.write(b"the reason")
    outfile.flush()

ours, spark = socket.socketpair()
spark.close()
print(work_quietly(work, ours, True))
Other()
"""


def test_what_is_left_unsent_is_no_news_either() -> None:
    """Python tries again as it collects the file, and from 3.13 on says that this fails; before in development mode."""
    command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", _LEFT_UNSENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.stdout == "1\n"
    assert "ValueError: another" in done.stderr
    assert "Broken pipe" not in done.stderr


def test_pyspark_is_taken_from_its_folder() -> None:
    """Spark names the archives in it first. Without the folder they are needed."""
    lib, jar = "/venv/site-packages/pyspark/python/lib", "/venv/site-packages/pyspark/jars/spark-core.jar"
    archives = [f"{lib}/pyspark.zip", f"{lib}/py4j-0.10-src.zip", jar]

    with_folder = unpacked_first([*archives, "/app", "/venv/site-packages", "/other/lib.zip"])
    without = unpacked_first([*archives, "/app"])

    assert with_folder == ["/app", "/venv/site-packages", "/other/lib.zip", f"{lib}/py4j-0.10-src.zip"]
    assert without == [*archives, "/app"]


#: What pyspark's daemon does for each task of a worker, then both signals, then what a user's function may do.
_WORKER = """
import multiprocessing, os, signal, subprocess, time, types
from mm2py.pipeline.spark.fork_server import outlive_ends, work_quietly

def work(sock, authenticated):
    daemon.signal.signal(signal.SIGTERM, signal.SIG_DFL)
    daemon.signal.signal(signal.SIGINT, daemon.signal.default_int_handler)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
        program = subprocess.Popen(["sleep", "60"])
        program.send_signal(number)
        print(-program.wait(10), flush=True)
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    forked.start()
    forked.terminate()
    forked.join(10)
    print(-(forked.exitcode or 0), flush=True)
    forked.kill()

daemon = types.SimpleNamespace()
outlive_ends(daemon)
work_quietly(work, None, True)
"""


def test_a_worker_outlives_what_ends_the_programs_that_it_starts() -> None:
    """SIGTERM of a process manager reaches all of a service; a transform's own helper program heeds it as ever. So does
    what it forks: a pool of processes is ended with it.
    """
    done = subprocess.run([sys.executable, "-c", _WORKER], capture_output=True, text=True, check=False, timeout=60)
    ends = [signal.SIGINT, signal.SIGTERM, signal.SIGTERM]

    assert done.stdout.split() == [str(int(number)) for number in ends], done.stderr
