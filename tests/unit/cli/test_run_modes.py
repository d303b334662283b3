"""Arguments, messages and exit codes of the commands that stand in for Kafka's other scripts."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from mm2py.cli import main as command
from mm2py.cli import mirror_maker_1, standalone
from mm2py.cli.exit_code import ExitCode


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return a worker's, a connector's, a consumer's and a producer's file, by those names."""
    texts = {
        "worker": "bootstrap.servers = b:9092\n",
        "connector": "name = s\nconnector.class = MirrorSourceConnector\n"
        "source.cluster.alias = source\nsource.cluster.bootstrap.servers = a:9092\n",
        "consumer": "bootstrap.servers = a:9092\ngroup.id = g\nauto.offset.reset = earliest\n",
        "producer": "bootstrap.servers = b:9092\n",
    }
    paths = {name: tmp_path / f"{name}.properties" for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name])
    return {name: str(path) for name, path in paths.items()}


def _legacy(files: dict[str, str], *arguments: str) -> list[str]:
    return ["--consumer.config", files["consumer"], "--producer.config", files["producer"], *arguments]


def test_a_worker_and_a_connector_validate(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """All files are named, and the flow that they amount to; mm2py standalone is the same."""
    arguments = [files["worker"], files["connector"], "--validate"]

    assert standalone.main(arguments) == ExitCode.OK
    said = capsys.readouterr().out
    assert said.endswith("connector.properties: no problems; flows: source->target\n")
    assert command.main(["standalone", *arguments]) == ExitCode.OK
    assert capsys.readouterr().out == said


def test_a_worker_without_connectors_is_bad_usage(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Connect's script ends with 1 when its arguments make no sense."""
    with pytest.raises(SystemExit) as caught:
        standalone.main([files["worker"]])

    assert caught.value.code == ExitCode.BAD_USAGE == 1
    assert "connector.properties" in capsys.readouterr().err


def test_problems_of_a_connector_s_file_are_lines(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each problem is a line on stderr with its file; the exit code is that of a file that cannot be used."""
    Path(files["connector"]).write_text("name = s\n")

    assert standalone.main([files["worker"], files["connector"]]) == ExitCode.FAILED
    assert capsys.readouterr().err.startswith("connector.properties: connector.class: missing")


def test_a_flow_of_connectors_is_explained(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every value knows the file, line and key that the user wrote; --override is written as in mm2.properties."""
    arguments = [files["worker"], files["connector"], "--override", "source->target.tasks.max=3", "--explain"]

    assert standalone.main([*arguments, "source->target"]) == ExitCode.OK
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "tasks.max = 3 [--override, source->target.tasks.max]" in lines
    assert "target.bootstrap.servers = b:9092 [worker.properties:1, bootstrap.servers]" in lines


def test_the_first_mirror_makers_line_validates(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every option of Kafka 3's script is taken, its value behind a blank or a sign; so are KIP-382's short names."""
    whole = ["--include=orders", "--num.streams", "2", "--offset.commit.interval.ms=5000", "--new.consumer"]
    whole += ["--abort.on.send.failure", "true", "--consumer.rebalance.listener", "L", "--rebalance.listener.args", "x"]
    short = ["--consumer", files["consumer"], "--producer", files["producer"], "--whitelist", "orders"]

    assert mirror_maker_1.main(_legacy(files, *whole, "--validate")) == ExitCode.OK
    assert mirror_maker_1.main([*short, "--validate"]) == ExitCode.OK
    assert command.main(["legacy-mirror", *short, "--validate"]) == ExitCode.OK
    assert capsys.readouterr().out.count("no problems; flows: g->target") == 3


@pytest.mark.parametrize(
    "arguments", [[], ["--include", "a", "--whitelist", "b"], ["--include", "a", "--num.stream", "2"]]
)
def test_a_line_that_makes_no_sense(
    files: dict[str, str], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exactly one of --include and --whitelist, and no option that does not exist; kafka-mirror-maker ends with 1."""
    with pytest.raises(SystemExit) as caught:
        mirror_maker_1.main(_legacy(files, *arguments))

    assert caught.value.code == ExitCode.BAD_USAGE
    assert capsys.readouterr().err.startswith("usage: kafka-mirror-maker")


def test_a_message_handler_is_refused(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """What a handler does to records would silently not be done."""
    assert mirror_maker_1.main(_legacy(files, "--include", "a", "--message.handler", "H")) == ExitCode.FAILED
    assert "--message.handler: records are copied unopened" in capsys.readouterr().err


def test_mirus_s_script_takes_its_line(tmp_path: Path) -> None:
    """By its name, as it is installed: a worker's file, and lines that come after the file's; the last one counts."""
    file = tmp_path / "worker.properties"
    topics = "".join(f"{kind}.storage.topic = {kind}\n" for kind in ("config", "offset", "status"))
    file.write_text(f"bootstrap.servers = b:9092\ngroup.id = mirus\n{topics}")
    script = Path(sysconfig.get_path("scripts")) / "mirus-worker-start"

    def ran(*overrides: str) -> tuple[int, str]:
        lines = [argument for line in overrides for argument in ("--override", line)]
        line = [script, "-loggc", file, *lines, "--validate"]
        done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    assert ran("rest.port=0", "offset.flush.interval.ms=1000")[0] == ExitCode.OK
    code, said = ran("offset.flush.interval.ms=soon")
    assert code == ExitCode.FAILED
    assert said.startswith("--override: offset.flush.interval.ms: "), said
