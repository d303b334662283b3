"""The benchmark of many partitions, small: a flow starts, stands idle, and has none of its records lost or repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import scaled


ROOT = Path(__file__).parents[2]
PARTITIONS, BUSY_S, RATE = 100, 10, 200
RUN_LIMIT_S = 240.0
#: A machine that does much else makes figures bad. They are to be figures, and of the right size, not good ones.
MOST_START_S, MOST_PSS_MIB, MOST_P50_MS = 120.0, 4_000.0, 10_000.0
SMALL = ("--partitions", str(PARTITIONS), "--busy", str(BUSY_S), "--rate", str(RATE), "--settle", "1", "--idle", "2")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the part ``idle`` as a user does, and return what it wrote for mm2py."""
    directory = tmp_path_factory.mktemp("scale")
    file = directory / "figures.json"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", "idle", *SMALL, "--json", str(file)],
        check=False,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=scaled(RUN_LIMIT_S),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(file.read_text())["mm2py"]
    return found


def test_every_record_arrives_once(figures: dict[str, Any]) -> None:
    """What the producer sent is what the receiver got."""
    assert figures["sent"] >= BUSY_S * RATE / 2
    assert (figures["missing"], figures["repeated"]) == (0, 0)


def test_the_figures_are_of_the_right_size(figures: dict[str, Any]) -> None:
    """The first record comes before the last, latencies grow with their share, and nothing is free."""
    start, warm = figures["start"], figures["warm"]

    assert 0 < start["first_record_s"] <= start["all_copied_s"] < scaled(MOST_START_S)
    assert start["all_topics_s"] <= start["all_copied_s"]
    assert 0 < figures["peak_pss_mib"] < MOST_PSS_MIB
    assert 0 <= figures["idle_cores"] < (os.cpu_count() or 1)
    assert 0 < warm["p50_ms"] <= warm["p99_ms"] <= warm["p999_ms"] <= warm["max_ms"]
    assert warm["p50_ms"] < scaled(MOST_P50_MS)
    assert figures["cold"]["records"] > 0
    assert figures["boundaries"]["epochs"] >= 0
