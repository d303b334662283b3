"""Values of options that cannot be meant: empty ones, as of a script's variable, and numbers that nothing has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from mm2py.cli import flow, offset_translation, position_changes, positions
from mm2py.cli.exit_code import ExitCode
from mm2py.core.herder.connector_offsets import PartitionOffsets
from mm2py.herder.connector_offsets import Survey
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from tests.support.config_files import BASE


HERE = TopicPartition("orders", 0)
PLACE = PartitionOffsets(0, 100, None, 50, None, "A.orders")


@pytest.mark.parametrize(
    ("main", "line", "said"),
    [
        (flow.main, "A->B|limit|--topic=|--records-per-s=5", "argument --topic: the value is empty"),
        (flow.main, "A->B|limit|--bytes-per-s= ", "argument --bytes-per-s: the value is empty"),
        (flow.main, "A->B|pause|--topic=", "argument --topic: the value is empty"),
        (flow.main, "A->B|pause|--topic=t|--partition=-1", "from 0 to 2147483647, found -1"),
        (flow.main, "A->B|restart|--task=99999999999", "from 0 to 2147483647, found 99999999999"),
        (flow.main, "A->B|topics|--limit=0", "argument --limit: expected a whole number from 1 to 10000, found 0"),
        (offset_translation.main, "FILE|A->B|", "the value is empty"),
        (lambda it: positions.main("describe", it), "FILE|--partition=-1", "from 0 to 2147483647, found -1"),
        (lambda it: position_changes.main("reset", it), "FILE|--all-topics|--to-datetime=|--yes", "--to-datetime: "),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(
    main: Callable[[list[str]], int], line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty topic set the limit of the whole flow, and an empty limit removed the one there was."""
    file = tmp_path / "mm2.properties"
    file.write_text(BASE)
    try:
        code = main(line.replace("FILE", str(file)).split("|"))
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]

    assert code == ExitCode.BAD_ARGUMENTS
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a file with a flow that has no positions, and mirrors one partition."""

    async def survey(takes: Callable[[TopicPartition], bool]) -> Survey:
        return Survey({}, {"orders": "A.orders"}, {HERE: PLACE} if takes(HERE) else {})

    async def read() -> dict[TopicPartition, Position]:
        return {}

    offsets = SimpleNamespace(survey=survey, positions=read)
    monkeypatch.setattr(positions, "offsets_of", lambda *_: offsets)

    async def runs(*_: object) -> None:
        return None

    monkeypatch.setattr(positions, "find_runner", runs)
    path = tmp_path / "mm2.properties"
    path.write_text(BASE)
    return str(path)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("describe --topics=nothing --format=json", ExitCode.FAILED, "mirrors none of the topics and partitions"),
        ("describe --partition=7", ExitCode.FAILED, "mirrors none of the topics and partitions"),
        ("describe --topics=orders", ExitCode.OK, ""),
        ("export --topics=orders", ExitCode.FAILED, "has no position of the topics and partitions"),
        ("export", ExitCode.OK, "mm2py: flow A->B has no positions"),
    ],
)
def test_what_finds_nothing_says_so(
    command: str, code: ExitCode, said: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that saves positions must not take an empty file for a good one."""
    action, *options = command.split()

    assert positions.main(action, [file, *options]) == code
    assert said in capsys.readouterr().err
