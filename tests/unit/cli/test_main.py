"""The ``mm2py`` command: which subcommand is meant, and what has to be loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mm2py.cli import main
from mm2py.cli.exit_code import ExitCode


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
def test_a_file_without_transforms_is_checked_without_spark(file: Path, question: str) -> None:
    """A problem of the file, or an effective value, is there at once too: nothing has to run for it."""
    _, loaded = loaded_by("mirror", str(file), question)

    assert loaded == "set()"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND"),
        (["unknown"], "invalid choice: 'unknown'"),
        (["mirror"], "required: "),
        (["mirror", "file", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["flow", "A-", "pause"], "quote it"),
        (["flow", "A", "pause"], "write 'A->B'"),
        (["flow", "A->B", "drop"], "invalid choice: 'drop'"),
        (["flow", "A->B", "pause", "--connector", "sink"], "invalid choice: 'sink'"),
        (["flow", "A->B", "--watch", "0"], "expected seconds"),
        (["status", "extra"], "unrecognized arguments: extra"),
        (["topics", "dump"], "properties file, or give --bootstrap-servers"),
        (["topics", "dump", "{file}", "--cluster", "C"], "--cluster C: unknown cluster; "),
        (["topics", "dump", "{file}", "checkpoints", "--source", "C"], "--source C: unknown cluster; "),
        (["topics", "dump", "{file}", "checkpoints", "heartbeats"], "one topic or kind at a time"),
        (["topics", "dump", "{file}", "heartbeats", "--target", "A"], "--target is for offset-syncs"),
        (["topics", "dump", "--bootstrap-servers", "b:1", "--cluster", "B"], "--cluster names a cluster of a"),
        (["topics", "dump", "{file}", "--text", "--json"], "not allowed with"),
        (["topics", "drop", "{file}"], "invalid choice: 'drop'"),
        (["topics"], "required: action"),
        (["offsets", "translate", "{file}", "A", "group"], "A is not a flow; write 'A->B'"),
        (["offsets", "translate", "{file}", "from:A/to:C", "group"], "flow C: unknown cluster"),
        (["offsets", "translate", "{file}", "A->B"], "required: GROUP|TOPIC:PARTITION:OFFSET"),
        (["offsets", "remove", "{file}", "A->B", "group"], "invalid choice: 'remove'"),
        (["offsets", "describe", "{file}", "A"], "A is not a flow; write 'A->B'"),
        (["offsets", "describe", "{file}", "A->C"], "has no flow A->C; its flows: A->B"),
        (["offsets", "export", "{file}", "--topics", "("], "--topics: "),
        (["offsets", "import", "{file}", "A->B"], "name one file with offsets"),
        (["offsets", "import", "{file}", "x.csv", "--from-mirus", "t"], "name one file with offsets"),
        (["offsets", "import", "{file}", "nowhere.csv"], "nowhere.csv cannot be read: No such file"),
        (["offsets", "reset", "{file}", "--all-topics"], "one of the arguments --to-earliest"),
        (["offsets", "reset", "{file}", "--to-latest"], "name topics with --topics, or take"),
        (["offsets", "reset", "{file}", "--topics", "t", "--to-datetime", "2026-11-01"], "has no time zone"),
        (["verify", "{file}", "A->B", "--from", "soon"], "--from soon: write an offset"),
        (["verify", "{file}", "A->B", "--from", "1²"], "--from 1²: write an offset"),
        (["verify", "{file}", "A->B", "--sample", "2"], "--sample 2"),
        (["verify", "{file}", "A->B", "--topics", "a("], "--topics"),
        (["verify", "{file}", "A->B", "--slots", "-1"], "--slots -1"),
        (["verify", "{file}", "from:B/to:A"], "has no flow B->A; its flows: A->B"),
        (["verify", "{file}", "A -> C"], "has no flow A->C; its flows: A->B"),
        (["transform", "{file}", "from:B/to:A", "t"], "has no flow B->A; its flows: A->B"),
        (["demo", "--seconds", "x"], "mm2py demo: argument --seconds: invalid float value: 'x'"),
        (["verify", "{file}", "A-B"], "A-B"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_arguments_that_make_no_sense(
    words: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What contradicts itself, is unknown or missing ends with one line and Java's exit code, before anything runs."""
    try:
        code: object = main.main([word.format(file=file) for word in words])
    except SystemExit as ended:
        code = ended.code

    out, err = capsys.readouterr()
    assert (code, out) == (ExitCode.BAD_ARGUMENTS, "")
    assert said in err.splitlines()[-1]
