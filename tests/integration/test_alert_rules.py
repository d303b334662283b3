"""The rules and alerts, judged by promtool: each alert fires where it should, clears, and is silent otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from mm2py.telemetry.metric_rows import CHAPTERS
from tests.support.prometheus import promtool


ROOT = Path(__file__).parents[2]
RULES = ROOT / "ops/prometheus"
RULE_FILES = [RULES / "recording.rules.yml", RULES / "alerts.rules.yml"]
RUNBOOKS = ROOT / "docs/runbooks.md"
SEVERITIES = {"page", "ticket"}

#: Rules record names with colons; all other names of ours are exported.
_NAME = re.compile(r"\b(?:mm2py|kafka_connect|process)[_:][a-zA-Z0-9_:]+")
NODE = {"job": "mm2py", "instance": "n:8083"}
FLOW = {**NODE, "source": "A", "target": "B"}
TOPIC = {**FLOW, "topic": "A.t"}
#: Of all nodes that run the flow.
OF_FLOW = {"job": "mm2py", "source": "A", "target": "B"}
OF_NODE = {**OF_FLOW, "node": "localhost:8083 on m", "host": "m", "id": "m-1"}
SOURCE = {**FLOW, "connector": "MirrorSourceConnector"}


def written_rules(kind: str) -> list[dict[str, Any]]:
    """Return all rules of the files that are alerts, or all that are recordings."""
    groups = [group for file in RULE_FILES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def exported() -> set[str]:
    """Return all names of series that a node exports."""
    names = set()
    for metric in (metric for chapter in CHAPTERS for metric in chapter.metrics):
        ends = ("_bucket", "_count", "_sum") if metric.kind.value == "histogram" else ("",)
        names |= {metric.name + end for end in ends}
    return names


def used(text: str) -> set[str]:
    """Return the names of metrics in a text; recorded ones are left out where a rule records them."""
    recorded = {rule["record"] for rule in written_rules("record")}
    return {name for name in _NAME.findall(text) if name not in recorded}


def series(metric: str, labels: Mapping[str, str]) -> str:
    return metric + "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


@attrs.frozen
class Case:
    """
    What is scraped every 15 seconds, written as promtool writes it (from+step x times), and when the alert fires.

    By `clears` it is over, None where the series end with it.
    """

    alert: str
    scraped: Mapping[str, str]
    labels: Mapping[str, str]
    fires: str
    clears: str


def flow(metric: str, values: str, **labels: str) -> dict[str, str]:
    return {series(metric, {**FLOW, **labels}): values}


def step(name: str, failures: str, successes: str) -> dict[str, str]:
    return {
        **flow("mm2py_step_failures_total", failures, step=name),
        **flow("mm2py_last_success_timestamp_seconds", successes, step=name),
    }


def latency(in_time: str, late: str) -> dict[str, str]:
    """Records that arrived within a second, and those that took up to an hour; in all."""
    return {
        **flow("mm2py_replication_latency_seconds_bucket", in_time, le="1.0"),
        **flow("mm2py_replication_latency_seconds_bucket", late, le="3600.0"),
        **flow("mm2py_replication_latency_seconds_bucket", late, le="+Inf"),
    }


def retention(loss: str, lag: str) -> dict[str, str]:
    return {
        series("mm2py_partition_retention_loss_seconds", {**TOPIC, "partition": "0"}): loss,
        series("mm2py_partition_lag_seconds", {**TOPIC, "partition": "0"}): lag,
    }


def lagging(records: str, seconds: str) -> dict[str, str]:
    return {
        series("mm2py_partition_lag_records", {**TOPIC, "partition": "0"}): records,
        series("mm2py_partition_lag_seconds", {**TOPIC, "partition": "0"}): seconds,
    }


def broken(**counts: str) -> dict[str, str]:
    """Return the counters of broken history, which are all there from the start."""
    names = ("source_truncations", "source_recreations", "source_expirations", "target_rewinds", "target_recreations")
    return {
        name: values
        for counter in names
        for name, values in flow(f"mm2py_{counter}_total", counts.get(counter, "0x480")).items()
    }


def started(at_s: int, counters: Mapping[str, str]) -> dict[str, str]:
    """Return *counters* of a daemon that started then, and counted before its first scrape."""
    return {**counters, series("mm2py_start_time_seconds", NODE): f"_x{at_s // 15} {at_s}x480"}


CASES = [
    Case("Mm2pyDown", {series("up", NODE): "0x16 1x20"}, NODE, "3m30s", "4m30s"),
    Case("Mm2pyNotReady", {series("mm2py_ready", NODE): "0x24 1x20"}, NODE, "5m30s", "6m30s"),
    Case("Mm2pyNotReady", {series("mm2py_spark_up", NODE): "0x24 1x20"}, NODE, "5m30s", "6m30s"),
    Case("Mm2pyUnhealthy", {series("mm2py_healthy", NODE): "0x64 1x20"}, NODE, "15m30s", "16m30s"),
    Case(
        "Mm2pySettingsRefused",
        {series("mm2py_settings_refused", NODE): "1x8 0x20"},
        NODE,
        "1m30s",
        "3m",
    ),
    Case("Mm2pyFlowFailed", flow("mm2py_flow_state", "5x8 1x20"), FLOW, "1m30s", "3m"),
    Case(
        "Mm2pyFlowFailed",
        flow("mm2py_connector_state", "5x8 1x20", connector="MirrorSourceConnector"),
        SOURCE,
        "1m30s",
        "3m",
    ),
    Case(
        "Mm2pyRestarting",
        flow("mm2py_connector_failed_restart_attempts_total", "0+1x10 10x120", connector="MirrorSourceConnector"),
        SOURCE,
        "3m",
        "25m",
    ),
    Case(
        "Mm2pyRestarting",
        flow("mm2py_connector_task_failed_restart_attempts_total", "0+1x10 10x120", connector="MirrorSourceConnector"),
        SOURCE,
        "3m",
        "25m",
    ),
    Case(
        "Mm2pyClusterUnreachable",
        flow("mm2py_cluster_reachable", "0x12 1x20", cluster="A"),
        {**FLOW, "cluster": "A"},
        "2m30s",
        "4m",
    ),
    Case(
        "Mm2pyAuthErrors",
        {
            **flow("mm2py_authentication_errors_total", "0x4 1x200", cluster="B"),
            **flow("mm2py_cluster_reachable", "1x4 0x80 1x120", cluster="B"),
        },
        {**FLOW, "cluster": "B"},
        "18m",
        "25m",
    ),
    Case(
        "Mm2pyPositionsNotWritten",
        step("write positions", "0+1x60 60x40", "0x60 900x40"),
        {**FLOW, "step": "write positions"},
        "8m",
        "20m",
    ),
    Case("Mm2pyHeartbeatOld", flow("mm2py_heartbeat_emit_age_seconds", "0+15x20 1x20"), FLOW, "4m", "6m"),
    Case(
        "Mm2pyHeartbeatOld",
        flow("mm2py_heartbeat_age_seconds", "0+15x20 1x20", topic="A.heartbeats"),
        {**FLOW, "topic": "A.heartbeats"},
        "4m",
        "6m",
    ),
    Case(
        "Mm2pyHeartbeatOld",
        flow("mm2py_step_failures_total", "0+1x20 20x80", step="emit heartbeats"),
        {**FLOW, "step": "emit heartbeats"},
        "4m",
        "20m",
    ),
    Case(
        "Mm2pyThrottled",
        {
            # Two copy tasks, each held back for 10 of 15 seconds.
            **flow("mm2py_flow_throttled_seconds_total", "0+20x80 1600x80"),
            **flow("mm2py_task_state", "1x160", task="0"),
            **flow("mm2py_task_state", "1x160", task="1"),
        },
        FLOW,
        "17m",
        "35m",
    ),
    Case("Mm2pyRecordsOld", latency("0+90x200", "0+100x80 8000+90x120"), FLOW, "17m", "35m"),
    Case(
        "Mm2pyPartitionsStopped",
        flow("mm2py_flow_partitions", "2x24 0x20", stage="stopped"),
        {**FLOW, "stage": "stopped"},
        "5m30s",
        "7m",
    ),
    Case("Mm2pyLagGrowing", lagging("100+10x120 0x40", "120+15x120 0x40"), TOPIC, "25m", "33m"),
    Case("Mm2pyLagGrowing", lagging("100+10x120 0x40", "_x160"), TOPIC, "25m", "33m"),
    Case("Mm2pyRetentionLossNear", retention("3000x20 90000x20", "80000x20 5x20"), TOPIC, "3m", "7m"),
    Case("Mm2pyRetentionLossAhead", retention("20000x20 90000x20", "80000x20 5x20"), TOPIC, "3m", "7m"),
    Case("Mm2pyHistoryBroken", broken(source_truncations="0x4 1x480"), FLOW, "5m", "65m"),
    Case("Mm2pyHistoryBroken", broken(source_recreations="0x4 1x480"), FLOW, "5m", "65m"),
    Case("Mm2pyHistoryBroken", broken(source_expirations="0x4 1x480"), FLOW, "5m", "65m"),
    Case("Mm2pyHistoryBroken", broken(target_rewinds="0x4 1x480"), FLOW, "5m", "65m"),
    Case("Mm2pyHistoryBroken", broken(target_recreations="0x4 1x480"), FLOW, "5m", "65m"),
    Case("Mm2pyHistoryBroken", started(120, broken(source_expirations="_x8 1x480")), FLOW, "5m", "65m"),
    Case(
        "Mm2pyTargetPartitionsMissing",
        flow("mm2py_flow_missing_destination_partitions", "3x48 0x20"),
        FLOW,
        "11m",
        "13m",
    ),
    Case("Mm2pyConfigDrift", flow("mm2py_topic_sync_errors_total", "0x4 1x480", step="copy ACLs"), FLOW, "5m", "65m"),
    Case(
        "Mm2pyConfigDrift",
        started(120, flow("mm2py_topic_sync_errors_total", "_x8 3x480", step="copy ACLs")),
        FLOW,
        "5m",
        "65m",
    ),
    Case("Mm2pyGroupSyncFailing", step("sync group offsets", "0+1x80 80x80", "0x160"), FLOW, "15m", "35m"),
    Case("Mm2pyGroupSyncFailing", flow("mm2py_consumer_groups", "1x48 0x20", at_target="refused"), FLOW, "11m", "13m"),
    Case(
        "Mm2pyCheckpointsStale",
        step("write checkpoints", "0x80", "0x40 600x40"),
        {**FLOW, "step": "write checkpoints"},
        "6m",
        "11m",
    ),
    Case(
        "Mm2pyNodeGone",
        {
            **flow("mm2py_node_last_heard_seconds", "3x8 18+15x30", node="localhost:8083 on m", host="m", id="m-1"),
            **flow("mm2py_node_last_heard_seconds", "3x200", node="localhost:8083 on n", host="n", id="n-1"),
        },
        OF_NODE,
        "6m30s",
        "20m",
    ),
    Case("Mm2pyFlowOwnerless", flow("mm2py_flow_owner", "0x24 1x20"), OF_FLOW, "4m", "7m"),
    Case("Mm2pyFilesDiffer", flow("mm2py_flow_differing_settings", "2x80 0x20"), FLOW, "16m", "21m"),
    Case(
        "Mm2pyLoadUneven",
        {
            **flow("mm2py_node_bytes_per_second", "4000000x360", node="localhost:8083", id="n"),
            **flow("mm2py_node_bytes_per_second", "1000000x240 4000000x120", node="localhost:8083", id="m"),
            **flow("mm2py_node_tasks", "1x360", node="localhost:8083", id="n"),
            **flow("mm2py_node_tasks", "1x360", node="localhost:8083", id="m"),
        },
        OF_FLOW,
        "46m",
        "80m",
    ),
]  # fmt: skip

#: A node that does its work, however a threshold may be misread: level, paused, short of retention but level, …
HEALTHY = {
    series("up", NODE): "1x400",
    series("mm2py_start_time_seconds", NODE): "-3600x400",
    series("mm2py_ready", NODE): "1x400",
    series("mm2py_healthy", NODE): "1x400",
    series("mm2py_settings_refused", NODE): "0x400",
    series("mm2py_spark_up", NODE): "1x400",
    **flow("mm2py_flow_state", "6x400"),
    **flow("mm2py_connector_state", "7x400", connector="MirrorCheckpointConnector"),
    **flow("mm2py_connector_failed_restart_attempts_total", "3x400", connector="MirrorSourceConnector"),
    **flow("mm2py_cluster_reachable", "1x400", cluster="A"),
    **flow("mm2py_authentication_errors_total", "1x400", cluster="A"),
    **step("write positions", "0+1x400", "0+15x400"),
    **step("write checkpoints", "0x400", "0x400"),
    **flow("mm2py_heartbeat_emit_age_seconds", "59x400"),
    **flow("mm2py_flow_throttled_seconds_total", "0+7x400"),
    **flow("mm2py_task_state", "1x400", task="0"),
    **latency("0+100x400", "0+100x400"),
    **flow("mm2py_flow_partitions", "0x400", stage="stopped"),
    **flow("mm2py_flow_missing_destination_partitions", "0x400"),
    # Far behind, but catching up; and a topic whose source keeps records for ten minutes.
    **lagging("100000-10x400", "7000-10x400"),
    series("mm2py_partition_retention_loss_seconds", {**FLOW, "topic": "A.short", "partition": "0"}): "590x400",
    series("mm2py_partition_lag_seconds", {**FLOW, "topic": "A.short", "partition": "0"}): "10x400",
    **broken(source_truncations="1x400"),
    **flow("mm2py_topic_sync_errors_total", "2x400", step="copy ACLs"),
    **flow("mm2py_consumer_groups", "3x400", at_target="active"),
    **flow("mm2py_node_last_heard_seconds", "14x400", node="m:8083"),
    # The node owns the flow, another one does not. It copies more, but not much; a third one has no copy task.
    **flow("mm2py_flow_owner", "1x400"),
    **flow("mm2py_flow_owner", "0x400", instance="m:8083"),
    **flow("mm2py_flow_differing_settings", "0x400"),
    **flow("mm2py_node_bytes_per_second", "4000000x400", node="n:8083"),
    **flow("mm2py_node_bytes_per_second", "2000000x400", node="m:8083"),
    **flow("mm2py_node_bytes_per_second", "0x400", node="o:8083"),
    **flow("mm2py_node_tasks", "2x400", node="n:8083"),
    **flow("mm2py_node_tasks", "1x400", node="m:8083"),
    **flow("mm2py_node_tasks", "0x400", node="o:8083"),
}


def unit_test(
    scraped: Mapping[str, str], expected: Mapping[str, list[Mapping[str, str]]], alert: str = ""
) -> dict[str, Any]:
    """Write a test of promtool's: at each time, exactly these alerts fire; of one name, or of all."""
    which = f'ALERTS{{alertstate="firing",alertname="{alert}"}}' if alert else 'ALERTS{alertstate="firing"}'
    return {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in scraped.items()],
        "promql_expr_test": [
            {
                "expr": which,
                "eval_time": time,
                "exp_samples": [{"labels": series("ALERTS", labels), "value": 1} for labels in firing],
            }
            for time, firing in expected.items()
        ],
    }


def run_tests(tmp_path: Path, *tests: dict[str, Any]) -> None:
    file = tmp_path / "alerts.test.yml"
    files = [str(rules) for rules in RULE_FILES]
    file.write_text(yaml.safe_dump({"rule_files": files, "evaluation_interval": "15s", "tests": list(tests)}))
    promtool("test", "rules", file)


def firing_labels(case: Case) -> dict[str, str]:
    severity = {rule["alert"]: rule["labels"]["severity"] for rule in written_rules("alert")}[case.alert]
    return {**case.labels, "alertname": case.alert, "alertstate": "firing", "severity": severity}


def test_promtool_accepts_the_rules_and_the_example() -> None:
    """Every rule is valid PromQL, and the example configuration one that Prometheus takes."""
    assert "SUCCESS" in promtool("check", "rules", *RULE_FILES)
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", RULES / "prometheus.yml")


def test_the_commented_part_of_the_example_is_valid_too(tmp_path: Path) -> None:
    """Without the comment marks before https and tokens the example is a valid configuration, too."""
    file = tmp_path / "prometheus.yml"
    text = (RULES / "prometheus.yml").read_text()
    head, _, tail = text.partition("  # Nodes elsewhere")
    https = re.sub(r"^  # ", "  ", tail.partition("\n  #\n")[2], flags=re.MULTILINE)
    file.write_text(
        head.partition("  # A node whose")[0]
        + re.sub(r"^( +)# (cert|key)_file", r"\1\2_file", https, flags=re.MULTILINE)
    )

    assert "credentials_file: /etc" in file.read_text()
    promtool("check", "config", "--syntax-only", file)


def test_each_alert_fires_and_clears(tmp_path: Path) -> None:
    """Each alert fires when its cause has lasted long enough, with the labels to find it by, and clears after."""
    tests = [
        unit_test(case.scraped, {"0s": [], case.fires: [firing_labels(case)], case.clears: []}, case.alert)
        for case in CASES
    ]
    run_tests(tmp_path, *tests)

    assert {case.alert for case in CASES} == {rule["alert"] for rule in written_rules("alert")}


def test_a_node_that_does_its_work_is_left_alone(tmp_path: Path) -> None:
    """Nothing fires for a healthy node, be it paused, catching up, or once in trouble long ago."""
    run_tests(tmp_path, unit_test(HEALTHY, {time: [] for time in ("10m", "40m", "70m", "95m")}))


@pytest.mark.parametrize(
    "paused",
    [
        pytest.param(flow("mm2py_flow_state", "6x160"), id="flow"),
        pytest.param({series("mm2py_partition_stage", {**TOPIC, "partition": "0"}): "3x160"}, id="topic"),
        pytest.param({series("mm2py_partition_stage", TOPIC): "3x160"}, id="rolled up"),
    ],
)
def test_what_operators_paused_raises_no_alert(tmp_path: Path, paused: Mapping[str, str]) -> None:
    """The lag of a paused flow or topic grows on purpose."""
    scraped = {**lagging("100+10x160", "120+15x160"), **paused}
    run_tests(tmp_path, unit_test(scraped, {"25m": []}, "Mm2pyLagGrowing"))


#: Alerts about what waits for a cluster that is away, whichever of the two it is.
OF_ABSENCE = {
    "Mm2pyPositionsNotWritten",
    "Mm2pyHeartbeatOld",
    "Mm2pyRecordsOld",
    "Mm2pyLagGrowing",
    "Mm2pyTargetPartitionsMissing",
    "Mm2pyGroupSyncFailing",
    "Mm2pyCheckpointsStale",
}


def test_what_waits_for_a_cluster_that_is_away_raises_no_second_alert(tmp_path: Path) -> None:
    """The operator on duty is called once, for the cluster."""
    away = {
        series("up", NODE): "1x160",
        **flow("mm2py_flow_state", "9x160"),
        **flow("mm2py_cluster_reachable", "0x160", cluster="B"),
    }
    unreachable = {**FLOW, "cluster": "B", "alertname": "Mm2pyClusterUnreachable", "severity": "page"}
    firing = {**unreachable, "alertstate": "firing"}
    waiting = [case for case in CASES if case.alert in OF_ABSENCE]
    run_tests(tmp_path, *(unit_test({**case.scraped, **away}, {case.fires: [firing]}) for case in waiting))


def test_a_flow_with_one_copy_task_has_an_even_load(tmp_path: Path) -> None:
    """One node has the task, as with tasks.max = 1, and the others stand by."""
    scraped = {
        **flow("mm2py_node_bytes_per_second", "4000000x200", node="n:8083"),
        **flow("mm2py_node_bytes_per_second", "0x200", node="m:8083"),
        **flow("mm2py_node_tasks", "1x200", node="n:8083"),
        **flow("mm2py_node_tasks", "0x200", node="m:8083"),
    }
    run_tests(tmp_path, unit_test(scraped, {"46m": []}, "Mm2pyLoadUneven"))


def test_a_paused_flow_blames_no_mirror_upstream(tmp_path: Path) -> None:
    """It copies no heartbeats, so the newest one that it has copied gets old; its own heartbeats are another matter."""
    age = flow("mm2py_heartbeat_age_seconds", "0+15x40", topic="A.heartbeats")
    paused = unit_test({**age, **flow("mm2py_flow_state", "6x40")}, {"9m": []}, "Mm2pyHeartbeatOld")
    run_tests(tmp_path, paused)


def test_records_that_waited_for_a_resume_raise_no_alert(tmp_path: Path) -> None:
    """Right after a pause records are old when they arrive; a quarter of an hour later that is an alert again."""
    scraped = {**latency("0+90x400", "0+100x400"), **flow("mm2py_flow_state", "6x40 1x360")}
    firing = {**FLOW, "alertname": "Mm2pyRecordsOld", "alertstate": "firing", "severity": "ticket"}
    run_tests(tmp_path, unit_test(scraped, {"24m": [], "60m": [firing]}, "Mm2pyRecordsOld"))


def test_a_node_without_a_scrape_target_is_down(tmp_path: Path) -> None:
    """The alert also fires for a job that has no target at all."""
    gone = {"job": "mm2py", "alertname": "Mm2pyDown", "alertstate": "firing", "severity": "page"}
    run_tests(tmp_path, unit_test({series("up", {"job": "other"}): "1x40"}, {"4m": [gone]}))


@pytest.mark.parametrize("rule", written_rules("alert"), ids=lambda rule: str(rule["alert"]))
def test_each_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    """Each alert has a severity, names what it is about, and has a runbook with the four parts."""
    name, notes = rule["alert"], rule["annotations"]
    chapter = RUNBOOKS.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    is_of_node = any(word in rule["expr"] for word in ("up{", "mm2py_ready", "mm2py_healthy", "settings_refused"))
    named = {"instance"} if is_of_node else {"source", "target"}

    assert rule["labels"]["severity"] in SEVERITIES
    assert named <= set(re.findall(r"\$labels\.(\w+)", notes["summary"]))
    assert notes["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
    assert re.findall(r"^\*\*(\w+)\.\*\*", chapter, re.MULTILINE) == ["Means", "Look", "Do", "Over"]


def test_each_runbook_is_of_an_alert() -> None:
    """No runbook is left of an alert that is gone."""
    alerts = [rule["alert"] for rule in written_rules("alert")]

    assert sorted(re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)) == sorted(alerts)


def test_all_that_rules_dashboard_and_runbooks_ask_for_is_exported() -> None:
    """Every metric that is named anywhere is one that a node exports."""
    dashboard = json.loads((ROOT / "ops/grafana/mm2py.json").read_text())
    texts = {
        "rules": " ".join(rule["expr"] for kind in ("record", "alert") for rule in written_rules(kind)),
        "dashboard": json.dumps(dashboard),
        "runbooks": RUNBOOKS.read_text(),
    }

    assert {name: missing for name, text in texts.items() if (missing := used(text) - exported())} == {}
    assert all(used(text) for text in texts.values())
