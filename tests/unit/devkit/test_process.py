"""Processes of our own: logs, signals, and their end with ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mm2py.devkit.process import LoggedProcess, start_process


_PARENT = """
import sys
from pathlib import Path
from mm2py.devkit.process import start_process
print(start_process("child", ["sleep", "60"], log_file=Path(sys.argv[1])).pid, flush=True)
{then}
"""


def _shell(tmp_path: Path, script: str) -> LoggedProcess:
    return start_process("sh", ["sh", "-c", script], log_file=tmp_path / "log", env={"WORD": "hello"}, cwd=tmp_path)


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    """What a process prints, on both streams, is in its log file; its environment and folder are as asked for."""
    process = _shell(tmp_path, 'echo "$WORD"; pwd >&2; exit 3')

    assert process.wait(10) == 3
    assert process.exit_code == 3
    assert process.log_text() == f"hello\n{tmp_path}\n"
    assert process.log_tail(1) == str(tmp_path)


def test_trouble_leaves_information_out(tmp_path: Path) -> None:
    """Mere information is not shown beside a failure, nor are Java's frames: they leave no room for its cause."""
    process = _shell(
        tmp_path, "echo 1 INFO all is well; echo 2 ERROR alas; printf '\\tat org.Frame\\nCaused by: it\\n'"
    )
    process.wait(10)

    assert process.log_warnings() == "2 ERROR alas\nCaused by: it"


def test_terminate_asks_first(tmp_path: Path) -> None:
    """A process that heeds SIGTERM ends in its own way, also when it was frozen."""
    process = _shell(tmp_path, "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    _await_log(process, "ready")
    process.pause()

    assert process.terminate(10) == 5


def test_terminate_insists(tmp_path: Path) -> None:
    """A process that does not heed SIGTERM is killed after the grace time."""
    process = _shell(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    _await_log(process, "ready")

    assert process.terminate(0.1) == -signal.SIGKILL
    assert not process.is_running


def test_waiting_too_long_says_for_whom(tmp_path: Path) -> None:
    """A process that does not end in time is named in the error."""
    process = _shell(tmp_path, "sleep 60")

    with pytest.raises(TimeoutError, match=f"sh .pid {process.pid}. still runs"):
        process.wait(0.01)

    process.kill()


def test_it_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """A process started from a thread goes on when that thread has ended."""
    started: list[LoggedProcess] = []
    thread = threading.Thread(target=lambda: started.append(_shell(tmp_path, "sleep 60")))
    thread.start()
    thread.join()
    time.sleep(0.05)

    assert started[0].is_running

    started[0].kill()


@pytest.mark.parametrize("then", ["", "import os; os.kill(os.getpid(), 9)"], ids=["exits", "is killed"])
def test_it_ends_with_its_parent(tmp_path: Path, then: str) -> None:
    """A process is gone soon after its parent, however that ended."""
    parent = subprocess.run(
        [sys.executable, "-c", _PARENT.format(then=then), str(tmp_path / "log")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    child = int(parent.stdout)
    deadline = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < deadline, "the child still runs"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _await_log(process: LoggedProcess, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in process.log_text():
        assert time.monotonic() < deadline, f"never printed {text}"
        time.sleep(0.01)
