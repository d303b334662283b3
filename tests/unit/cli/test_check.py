"""``mm2py check``: its file, its exit codes and its screen. `tests/integration/test_check.py` has real clusters."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from mm2py.cli import main as command
from mm2py.cli.exit_code import ExitCode
from mm2py.devkit.ports import free_ports


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """A file with two clusters that refuse connections, and no listener."""
    ports = free_ports(2)
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\nA->B.enabled = true\nlisteners =\n"
        + "".join(f"{alias}.bootstrap.servers = 127.0.0.1:{port}\n" for alias, port in zip("AB", ports, strict=True))
    )
    return path


def test_problems_of_the_file_come_first(away: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As with --validate: nothing is connected to for a file that would not be run."""
    away.write_text(away.read_text() + "tasks.max = many\n")
    code = command.main(["check", str(away)])
    out, err = capsys.readouterr()

    assert (code, out) == (ExitCode.FAILED, "")
    assert err.startswith("mm2.properties:6: tasks.max: ")


def test_clusters_that_are_both_away_have_a_line_each(away: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main(["check", str(away)])
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines() if line.startswith("unreachable")]

    assert (code, err) == (ExitCode.UNREACHABLE, "")
    assert [line[1] for line in lines] == ["A", "B"]
    assert "not every cluster answers" in out.splitlines()[-1]


def test_a_file_that_cannot_be_used_hides_no_cluster(away: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flow's class that cannot be loaded is an error; the rest is checked all the same."""
    away.write_text(away.read_text() + "A->B.topic.filter.class = no_such_module.Filter\n")
    code = command.main(["check", str(away), "--json"])
    report = json.loads(capsys.readouterr().out)

    assert (code, report["exit_code"]) == (ExitCode.FAILED, ExitCode.FAILED)
    assert [problem["key"] for problem in report["problems"]] == ["topic.filter.class"]
    assert {one["where"]: one["level"] for one in report["findings"]} == {"A": "unreachable", "B": "unreachable"}


def test_a_port_in_use_is_a_warning(away: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mirror copies without its status page, and it may be the mirror itself that runs already."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"http://127.0.0.1:{other.getsockname()[1]}"
        command.main(["check", str(away), "--override", f"listeners={address}"])

    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning") and address in line]
