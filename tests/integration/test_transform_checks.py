"""Spark's refusals of statements and functions that cannot be run, found without a record."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from mm2py.clock import SystemClock
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.session import SparkHost
from mm2py.pipeline.transform.columns import ARROW_IN_MILLIS
from mm2py.pipeline.transform.dry_run import refusals, try_out
from mm2py.telemetry.journal import EventLog


_ALONE = "it puts records together or in another order"
_JOINED = "SELECT r.* FROM records r JOIN (VALUES ('DE')) AS c(name) ON CAST(r.key AS STRING) = c.name"

#: Statements, and how what is said against them begins; nothing is said against those with an empty text.
_STATEMENTS = {
    "SELECT * FROM records WHERE key IS NOT NULL": "",
    "SELECT * EXCEPT (value), upper(CAST(value AS STRING)) AS value FROM records": "",
    _JOINED: "",
    "SELECT * EXCEPT (value), amount AS value FROM records": "[UNRESOLVED_COLUMN",
    "SELEC * FROM records": "[PARSE_SYNTAX_ERROR]",
    "SELECT * EXCEPT (headers) FROM records": "column headers is missing",
    "SELECT *, 1 AS amount FROM records": "column amount is none of a record's",
    "SELECT * EXCEPT (value), 1 AS value FROM records": "column value is int, which should be binary or string",
    "SELECT *, key AS value FROM records": "column value is there 2 times",
    "SELECT * FROM records ORDER BY offset": f"{_ALONE} (Sort)",
    "SELECT * FROM records LIMIT 1": f"{_ALONE} (CollectLimit)",
    "SELECT DISTINCT * FROM records": f"{_ALONE} (HashAggregate)",
    "SELECT * FROM records UNION ALL SELECT * FROM records": f"{_ALONE} (Union)",
    "SELECT * FROM records DISTRIBUTE BY key": f"{_ALONE} (Exchange)",
    "SELECT r.* FROM records r LATERAL VIEW explode(array(1, 2)) AS x": f"{_ALONE} (Generate)",
}
_FUNCTIONS = {
    "tests.support.transforms:masked": "",
    "tests.support.transforms:nothing": "tests.support.transforms:nothing cannot be imported",
    "tests.support.transforms:__doc__": "tests.support.transforms:__doc__ is no function",
    "builtins:str": "builtins:str gave str, not a DataFrame",
    "operator:itemgetter(1)": "operator:itemgetter(1) cannot be imported",
}


async def _refused() -> Mapping[str, str]:
    clock = SystemClock()
    host = SparkHost({"spark.master": "local[1]"}, copy_tasks=1, clock=clock, events=EventLog(clock))
    statements = [Transform(text, sql=text) for text in _STATEMENTS]
    functions = [Transform(name, function=name) for name in _FUNCTIONS]
    try:
        assert await try_out(host, statements[0], ARROW_IN_MILLIS.empty_table()) == []
        return await refusals(host, [*statements, *functions])
    finally:
        await host.stop(within_s=10)


@pytest.fixture(scope="module")
def refused() -> Mapping[str, str]:
    """Return what one Spark finds out about all of them."""
    return asyncio.run(_refused())


@pytest.mark.parametrize("text", [*_STATEMENTS, *_FUNCTIONS])
def test_what_cannot_be_run_is_refused_and_nothing_else(refused: Mapping[str, str], text: str) -> None:
    """Records are transformed one by one, into records; statements that do anything else are refused beforehand."""
    wanted = {**_STATEMENTS, **_FUNCTIONS}[text]

    said = refused.get(text, "")

    assert said.startswith(wanted)
    assert bool(said) is bool(wanted)
