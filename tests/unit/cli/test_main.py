"""The ``mm2py`` command: which subcommand is meant, and what has to be loaded for it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", ["status", "flow", "rest-user"])
def test_commands_that_need_no_spark_load_none(command: str) -> None:
    """What only asks a daemon is there at once: neither Spark nor a Kafka client is loaded for it."""
    ask = (
        "import sys; from mm2py.cli.main import main\n"
        f"try: main([{command!r}, '--help'])\n"
        "finally: print({'pyspark', 'pyarrow', 'aiokafka'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True)

    assert done.stdout.startswith(f"usage: mm2py {command} ")
    assert done.stdout.endswith("set()\n")
