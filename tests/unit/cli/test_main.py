"""The ``mm2py`` command: which subcommand is meant, and what has to be loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def loaded_by(*arguments: str) -> tuple[str, str]:
    """Run mm2py with *arguments*; return the first line that it prints, and which slow libraries it loaded."""
    ask = (
        "import sys; from mm2py.cli.main import main\n"
        f"try: main({list(arguments)!r})\n"
        "finally: print({'pyspark', 'pyarrow', 'aiokafka'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return lines[0], lines[-1]


@pytest.mark.parametrize(
    "command",
    [
        *("status", "flow", "rest-user", "mirror", "verify", "transform"),
        *("standalone", "distributed", "legacy-mirror"),
    ],
)
def test_help_loads_neither_spark_nor_a_kafka_client(command: str) -> None:
    """It is there at once, as what only asks a daemon is."""
    first, loaded = loaded_by(command, "--help")

    assert first.startswith(f"usage: mm2py {command} ")
    assert loaded == "set()"


@pytest.mark.parametrize("question", ["--validate", "--explain", "--changed"])
def test_a_file_without_transforms_is_checked_without_spark(tmp_path: Path, question: str) -> None:
    """A problem of the file, or an effective value, is there at once too: nothing has to run for it."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
    )
    _, loaded = loaded_by("mirror", str(file), question)

    assert loaded == "set()"
