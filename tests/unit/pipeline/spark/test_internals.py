"""How Spark's JVM is launched."""

from __future__ import annotations

import signal
import subprocess
import sys

from mm2py.pipeline.spark.internals import LaunchArguments


_TOLD = "import signal; print(*(signal.getsignal(it).name for it in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)))"


def test_what_is_launched_ends_at_a_hangup_alone() -> None:
    """Under nohup, too: with a SIGHUP that it ignores, Spark would be killed before it has cleaned up."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        arguments = LaunchArguments(stdout=subprocess.PIPE, text=True)
        arguments["preexec_fn"] = None  # as PySpark sets its own
        found = subprocess.run([sys.executable, "-c", _TOLD], check=True, **arguments).stdout
    finally:
        signal.signal(signal.SIGHUP, before)

    assert found.split() == ["SIG_DFL", "SIG_IGN", "SIG_IGN"]
