"""``mm2py offsets``: what the arguments mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.cli import main as command
from mm2py.cli.exit_code import ExitCode
from tests.support.mm2_file import mm2_properties


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(mm2_properties("127.0.0.1:1", "127.0.0.1:1"))
    return path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["translate", "{file}", "A", "group"], "A is not a flow; write A->B", id="no flow"),
        pytest.param(["translate", "{file}", "A->C", "group"], "flow C: unknown cluster", id="unknown cluster"),
        pytest.param(["translate", "{file}", "A->B"], "required: GROUP|TOPIC:PARTITION:OFFSET", id="nothing to do"),
        pytest.param(["reset", "{file}", "A->B", "group"], "invalid choice: 'reset'", id="no such action"),
    ],
)
def test_arguments_that_make_no_sense(
    arguments: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arguments that cannot be meant end with one line and Java's exit code."""
    try:
        code: object = command.main(["offsets", *(argument.format(file=file) for argument in arguments)])
    except SystemExit as ended:
        code = ended.code

    assert code == ExitCode.BAD_ARGUMENTS
    assert said in capsys.readouterr().err.splitlines()[-1]
