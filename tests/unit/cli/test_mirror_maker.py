"""The command's arguments, messages and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mm2py.cli import main as command
from mm2py.cli import mirror_maker, transform_checks
from mm2py.cli.exit_code import ExitCode
from mm2py.config.problem import Problem
from mm2py.pipeline.spark.session import SparkHungError
from tests.support.config_files import BASE


@pytest.mark.parametrize("main", [mirror_maker.main, lambda words: command.main(["mirror", *words])])
def test_a_good_file_validates(
    main: Callable[[list[str]], int], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--validate says that there are no problems, and runs nothing; `mm2py mirror` is the same command."""
    assert main([str(file), "--validate"]) == ExitCode.OK

    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == f"{file}: no problems; flows: A->B"
    assert err == ""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)


NO_HEARTBEATS = "emit.heartbeats.enabled = false\n"
NO_FLOW = "mm2.properties: No source->target replication flows."


@pytest.mark.parametrize(
    ("content", "arguments", "line"),
    [
        (None, (), "mm2.properties: cannot be read: No such file or directory"),
        (BASE, ("--clusters", "Z"), "--clusters: Z: unknown cluster"),
        (BASE.replace("true", "false") + NO_HEARTBEATS, (), NO_FLOW),
        (BASE + NO_HEARTBEATS, ("--clusters", "A"), NO_FLOW),
        (
            BASE + "B->A.enabled = true\nreplication.policy.class = identity\n",
            ("--clusters", "B"),
            "mm2.properties: replication.policy.class: A->B, B->A would feed each other without end",
        ),
        (BASE + "tasks.max = many\n", ("--validate",), "mm2.properties:5: tasks.max"),
    ],
    ids=["no such file", "unknown alias", "no flow", "no flow to that cluster", "loop", "validate"],
)
@pytest.mark.usefixtures("elsewhere")
def test_one_line_for_what_cannot_run(
    content: str | None, arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot run ends with Java MirrorMaker's exit code and one clear line that says what to do."""
    if content is not None:
        Path("mm2.properties").write_text(content)

    assert mirror_maker.main(["mm2.properties", *arguments]) == ExitCode.FAILED

    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(line)


def test_a_spark_that_hangs_while_it_validates_is_a_line(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hung is reported with a hint, without a traceback."""

    async def hang(_settings: object) -> list[Problem]:
        raise SparkHungError("its JVM has not answered for 20 s")

    monkeypatch.setattr(mirror_maker, "needs_spark", lambda _settings: True)
    monkeypatch.setattr(transform_checks, "refused_transforms", hang)

    assert mirror_maker.main([str(file), "--validate"]) == ExitCode.FAILED

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mm2py: Spark hung and was killed: its JVM has not answered for 20 s; check the memory")


@pytest.mark.parametrize("words", [["mirror"], ["topics", "dump"]], ids=" ".join)
def test_every_problem_is_a_line(file: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """Each problem of a file is one line on stderr, without a traceback, whatever command reads it."""
    file.write_text(file.read_text() + "tasks.max = many\nA->B.replication.factor = none\n")

    assert command.main([*words, str(file)]) == ExitCode.FAILED

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("mm2.properties:" in line for line in lines)


def test_overrides_count_as_the_last_lines_of_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--override may be given several times; what it sets is explained with its origin."""
    arguments = [str(file), "--override", "tasks.max=3", "--override", "A->B.topics = a=b, c"]

    assert mirror_maker.main([*arguments, "--explain", "A->B"]) == ExitCode.OK

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "tasks.max = 3 [--override, tasks.max]" in lines
    assert "topics = a=b, c [--override, A->B.topics]" in lines
    assert "replication.factor = 1 [mm2.properties:5, replication.factor]" in lines
    assert "A->B: the client that reads A" in lines
    assert "source.bootstrap.servers = a:9092 [mm2.properties:2, A.bootstrap.servers]" in lines


@pytest.mark.parametrize("words", [["--explain"], ["--explain", "A->B"], ["--explain", "from:A/to:B"], []])
def test_what_differs_from_the_default_is_explained_alone(
    file: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A line that repeats the default, however it is spelt, is left out as the defaults are."""
    file.write_text("tasks.max = +1\nemit.checkpoints.interval.seconds = 7\nspark.ui.port = 4050\n" + file.read_text())

    assert mirror_maker.main([str(file), *words, "--changed"]) == ExitCode.OK

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "emit.checkpoints.interval.seconds = 7 [mm2.properties:2, emit.checkpoints.interval.seconds]" in lines
    assert "spark.ui.port = 4050 [mm2.properties:3, spark.ui.port]" in lines
    assert not [line for line in lines if "[default]" in line or line.startswith("tasks.max")]


def test_a_wrong_override_is_a_problem_like_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What an override says is judged as lines are."""
    assert mirror_maker.main([str(file), "--override", "tasks.max=many", "--validate"]) == ExitCode.FAILED
    assert "--override: tasks.max: expected a whole number" in capsys.readouterr().err


def test_nothing_explained_is_a_secret(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Passwords are masked, what came from a provider shows its reference."""
    file.write_text(
        file.read_text()
        + "config.providers = env\nA.consumer.client.id = ${env:PATH}\nA.ssl.truststore.password = hush\n"
    )

    assert mirror_maker.main([str(file), "--explain"]) == ExitCode.OK

    said = capsys.readouterr().out
    assert "hush" not in said
    assert os.environ["PATH"] not in said
    assert "${env:PATH}" in said


def test_an_unknown_flow_is_not_explained(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flow that does not exist is bad arguments, and the known ones are named."""
    assert mirror_maker.main([str(file), "--explain", "A->C"]) == ExitCode.BAD_ARGUMENTS
    assert "no flow A->C; there are A->B" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--clusters"], ["a", "--nonsense"], ["a", "--override", "tasks.max"]])
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments of the script that make no sense end with Java's exit code and a line that names it."""
    with pytest.raises(SystemExit) as ended:
        mirror_maker.main(arguments)

    assert ended.value.code == ExitCode.BAD_ARGUMENTS
    assert "connect-mirror-maker: " in capsys.readouterr().err


def test_without_java_it_does_not_start(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If Java is missing, one line says so and how to install it; the status file has the rest."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    status = tmp_path / "status.json"

    code = mirror_maker.main([str(file), "--status-file", str(status)])

    last = capsys.readouterr().err.splitlines()[-1]
    assert code == ExitCode.NOT_STARTED
    assert last.startswith("mm2py: Spark needs Java")
    assert "install" in last
    assert [flow["flow"] for flow in json.loads(status.read_text())["flows"]] == ["A->B"]


def test_with_an_old_java_it_does_not_start(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A Java that cannot load Spark's classes is named, rather than Spark's settings."""
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    refusal = "java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been compiled by a more"
    java.write_text(f"#!/bin/sh\necho 'Error: LinkageError occurred' >&2\necho '{refusal}' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    code = mirror_maker.main([str(file)])

    assert code == ExitCode.NOT_STARTED
    assert f"Spark needs Java, and {java} (JAVA_HOME is set) is too old; install" in capsys.readouterr().err


def test_without_a_folder_for_temporary_files_it_does_not_start(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container with a read-only root one line says what to set."""
    monkeypatch.setattr(tempfile, "tempdir", "/proc")

    code = mirror_maker.main([str(file)])

    [line] = capsys.readouterr().err.splitlines()
    assert code == ExitCode.NOT_STARTED
    assert line.startswith("mm2py: no private directory can be made")
    assert "TMPDIR" in line


@pytest.mark.parametrize(
    ("path", "may_write", "said"),
    [
        ("missing/status.json", True, "there is no folder missing"),
        (".", True, "it is a folder"),
        ("status.json", False, "the folder . is not writable"),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_a_status_file_that_cannot_be_written_is_refused(
    path: str, may_write: bool, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What watches it would otherwise wait for it in vain."""
    monkeypatch.setattr(os, "access", lambda *_: may_write)
    Path("mm2.properties").write_text(BASE)

    assert mirror_maker.main(["mm2.properties", "--status-file", path]) == ExitCode.BAD_ARGUMENTS

    assert capsys.readouterr().err == f"--status-file {path}: {said}\n"


def test_a_reader_that_has_seen_enough_is_no_error(file: Path) -> None:
    """`--explain | head` ends without a traceback: a pipe that its reader closed ends the output, nothing else."""
    words = [sys.executable, "-m", "mm2py", "mirror", str(file), "--explain"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(words, env=env, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (ExitCode.OK, b"")


@pytest.mark.parametrize(
    "problem",
    [
        "A.bootstrap.servers = a\nemit.checkpoints = true\n",
        "A->B.topic.filter.class = nowhere.Filter\nemit.checkpoints = true\n",
    ],
    ids=["of the file", "of this machine"],
)
def test_notes_are_printed_beside_problems(file: Path, capsys: pytest.CaptureFixture[str], problem: str) -> None:
    """One of them may name the cause, such as a misspelt key, where a problem only names its effect."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith(problem.partition(" ")[0])]
    file.write_text("\n".join(lines) + "\n" + problem)

    assert mirror_maker.main([str(file), "--validate"]) == ExitCode.FAILED

    first, note = capsys.readouterr().err.splitlines()
    assert not first.startswith("note: ")
    assert note.startswith("note: mm2.properties:")
    assert "did you mean" in note


def test_strict_refuses_notes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown key is a note, and with --strict a problem."""
    file.write_text(file.read_text() + "emit.checkpoints = true\n")

    lenient = mirror_maker.main([str(file), "--validate"])
    noted = capsys.readouterr()
    strict = mirror_maker.main([str(file), "--validate", "--strict"])
    refused = capsys.readouterr()

    assert (lenient, strict) == (ExitCode.OK, ExitCode.FAILED)
    assert "emit.checkpoints" in noted.out
    assert "emit.checkpoints" in refused.err


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "A->B.replication.policy.class = com.example.Naming\n",
            ("replication.policy.class: com.example.Naming", "def format_remote_topic"),
        ),
        ("A->B.topic.filter.class = com.example.Filter\n", ("topic.filter.class: com.example.Filter",)),
        ("A->B.group.filter.class = nowhere.Filter\n", ("group.filter.class: nowhere.Filter",)),
        (
            "A.security.protocol = SSL\nA.ssl.truststore.location = /nowhere/trust.pem\nA.ssl.truststore.type = PEM\n",
            (":18: A.ssl.truststore.*: ", "/nowhere/trust.pem"),
        ),
        ("secrets.key.file = /nowhere/key\n", (":17: secrets.key.file: /nowhere/key: No such file",)),
        (
            "listeners = https://:8443\nlisteners.https.ssl.keystore.location = /nowhere/rest.pem\n",
            (":17: listeners: ssl.keystore.*: No such file", "/nowhere/rest.pem"),
        ),
        ("rest.auth.users.file = /nowhere/users\n", (":17: rest.auth.users.file: /nowhere/users: No such file",)),
    ],
    ids=["policy", "topic filter", "group filter", "truststore", "key of secrets", "REST's store", "REST's users"],
)
def test_validate_finds_what_would_fail_at_the_start(
    file: Path, capsys: pytest.CaptureFixture[str], lines: str, words: tuple[str, ...]
) -> None:
    """What can be known without a cluster is no surprise of the night."""
    file.write_text(file.read_text() + lines)

    assert mirror_maker.main([str(file), "--validate"]) == ExitCode.FAILED

    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert sum(not line.startswith("note: ") for line in said.splitlines()) == 1


def _answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_file_is_judged_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--validate --json has the flows, and each note and problem in its parts; the exit code stays."""
    file.write_text(file.read_text() + "emit.checkpoints = true\n")
    line = len(file.read_text().splitlines())

    good = mirror_maker.main([str(file), "--validate", "--json"]), _answer(capsys)
    strict = mirror_maker.main([str(file), "--validate", "--strict", "--json"]), _answer(capsys)

    note = good[1]["notes"][0]
    assert (note["where"], note["key"]) == (f"{file.name}:{line}", "emit.checkpoints")
    assert good == (
        ExitCode.OK,
        {
            "files": [str(file)],
            "exit_code": 0,
            "problems": [],
            "notes": [note],
            "flows": [{"flow": "A->B", "is_enabled": True}],
        },
    )
    assert strict == (ExitCode.FAILED, {"files": [str(file)], "exit_code": 2, "problems": [note], "notes": []})


def test_settings_are_explained_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--explain --json has each setting with its flow, none for those of the process, and with --changed fewer."""
    words = [str(file), "--override", "A->B.tasks.max=3", "--override", "log.level=debug", "--json"]

    assert mirror_maker.main([*words, "--changed"]) == ExitCode.OK
    changed = _answer(capsys)["settings"]
    assert mirror_maker.main([*words, "--explain", "A->B"]) == ExitCode.OK
    every = _answer(capsys)["settings"]

    found = {(one["flow"], one["key"]): one for one in changed}
    assert found["A->B", "tasks.max"] == {
        "flow": "A->B", "key": "tasks.max", "value": "3", "origin": "--override, A->B.tasks.max",
        "has_effect": True, "is_changed": True,
    }  # fmt: skip
    assert found[None, "log.level"]["value"] == "debug"
    assert len(every) > len(changed)
    assert [one for one in every if one["is_changed"]] == changed


def test_json_is_of_what_is_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node that runs prints no JSON: it is not started by mistake."""
    assert mirror_maker.main([str(file), "--json"]) == ExitCode.BAD_ARGUMENTS
    assert capsys.readouterr().err == "--json needs --validate or --explain\n"
