"""``mm2py completion``: what a shell offers for a line that is being typed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mm2py.cli import main as command
from mm2py.cli.completion import all_commands


#: Asks bash for what may follow the words, the last of which is being typed.
_ASK = """\
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_mm2py
echo "${COMPREPLY[*]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert command.main(["completion", "bash"]) == 0
    path = tmp_path / "mm2py.bash"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["st"], {"status", "standalone"}),
        (["flow", "A->B", "pa"], {"pause", "partitions"}),
        (["flow", "A->B", "config", "re"], {"revert"}),
        (["flow", "A->B", "config", "set", "--conn"], {"--connector"}),
        (["offsets", "describe", "--fo"], {"--format"}),
        (["completion", ""], {"bash", "fish", "zsh"}),
    ],
)
def test_what_may_follow(script: Path, words: list[str], offered: set[str], tmp_path: Path) -> None:
    """Commands, verbs, choices and options, whatever the flow is called."""
    answer = subprocess.run(
        ["bash", "-c", _ASK, "bash", str(script), "mm2py", *words],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip

    assert offered <= set(answer.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_script_is_one_that_its_shell_reads(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["completion", shell])
    script = capsys.readouterr().out
    if shutil.which(shell) is None:
        assert "flow" in script
        return
    (tmp_path / "script").write_text(script)
    done = subprocess.run(
        [shell, "-n", str(tmp_path / "script")], check=False, capture_output=True, text=True, cwd=tmp_path
    )

    assert (done.returncode, done.stderr) == (0, "")


#: What prints nothing to be read by programs but what already is for them: a show, documents, lines of a file, a
#: shell's script;
#: and words that only lead to others.
_WITHOUT_JSON = {("demo",), ("docs",), ("rest-user",), ("completion",), ("offsets",), ()}


def test_every_command_that_shows_something_shows_it_as_json() -> None:
    assert {one.path for one in all_commands() if "--json" not in one.words} == _WITHOUT_JSON
