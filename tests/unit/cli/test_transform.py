"""What ``mm2py transform`` prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mm2py.cli import transform, transform_trial
from mm2py.pipeline.transform.columns import ARROW_IN_MILLIS
from mm2py.pipeline.transform.dry_run import Tried
from mm2py.pipeline.transform.record import Row
from tests.support.clocks import LoopClock
from tests.support.config_files import BASE


class _Host:
    def __init__(self, *_: object, **__: object) -> None: ...

    async def stop(self, **_: float) -> None: ...


async def test_what_a_function_prints_is_no_part_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line of --json is a record, for another program to read."""
    file = tmp_path / "mm2.properties"
    file.write_text(f"{BASE}A->B.transform.t.function = shop:mask\n")

    async def newest(*_: object) -> object:
        return ARROW_IN_MILLIS.empty_table()

    async def try_out(*_: object) -> list[Tried]:
        sys.stdout.write("called\n")
        return [Tried(Row("t", 0, 7, -1, None, b"v", ()), None)]

    monkeypatch.setattr(transform_trial, "SparkHost", _Host)
    monkeypatch.setattr(transform_trial, "newest", newest)
    monkeypatch.setattr(transform_trial, "try_out", try_out)

    await transform_trial.show(transform.make_parser().parse_args([str(file), "A->B", "t", "--json"]), LoopClock())

    printed = capsys.readouterr()
    assert [json.loads(line)["before"]["offset"] for line in printed.out.splitlines()] == [7]
    assert printed.err == "called\n"
