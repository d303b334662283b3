"""The page of metrics: generated from the rows, with names that other dashboards have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mm2py.telemetry.metric_docs import render
from mm2py.telemetry.metric_rows import METRICS


PAGE = (Path(__file__).parents[3] / "docs/metrics.md").read_text()


def test_the_documentation_is_up_to_date() -> None:
    """docs/metrics.md has what the rows say: ``python -m mm2py.telemetry.metric_docs docs/metrics.md``."""
    assert render(PAGE) == PAGE
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(METRICS)


@pytest.mark.parametrize(
    ("section", "source", "checkpoint"),
    [
        (
            "Strimzi's names",
            "kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_max",
            "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms",
        ),
        (
            "Kafka 4.3's names",
            "kafka_connect_plugins_replication_latency_ms_max",
            "kafka_connect_plugins_checkpoint_latency_ms",
        ),
    ],
)
def test_names_that_prometheus_gives(section: str, source: str, checkpoint: str) -> None:
    """The rule of the documentation, as Prometheus applies it, gives Java's metrics the names in other dashboards, and
    renames no other.
    """
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    # The last rule is about the names, those before it about labels.
    rule = dict(re.findall(r"^ +(?:- )?(regex|replacement): (.+)$", text, re.MULTILINE))
    replacement = re.sub(r"\$\{(\d)\}", r"\\g<\1>", rule["replacement"])
    renamed = {name: re.sub(f"^(?:{rule['regex']})$", replacement, name) for name in METRICS}
    java = {old: new for old, new in renamed.items() if old != new}

    assert set(java) == {name for name in METRICS if name.startswith("kafka_connect_mirror_")}
    assert {source, checkpoint} <= {*java.values()}
