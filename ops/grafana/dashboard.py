"""
The Grafana dashboard of mm2py: ``python ops/grafana/dashboard.py > ops/grafana/mm2py.json``.

What decides about an operator's next step stands at the top: is anything broken, and does the lag grow. Latency stands
further down: it says what the records' own timestamps say. Tables show the twenty worst; internal topics and
heartbeats are left out of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


sys.path.insert(0, str(Path(__file__).parent))

from panels import DATASOURCE, Query, Row, lay_out, lines, number, table


WHICH = 'job=~"$job",source=~"$source",target=~"$target"'
#: Heartbeats flow all the time, and hide what people write.
DATA = f'{WHICH},topic!~".*heartbeats|.*[.]internal|.*-internal"'
FLOW = "{{source}}->{{target}}"
#: Each node that runs a flow says the same of it.
OF_FLOW = "max by (job, source, target)"
BY_FLOW = "sum by (source, target)"
BY_TOPIC = "sum by (source, target, topic)"
BY_GROUP = "sum by (source, target, group)"
#: Each column of a table is of the rows that the first one has.
FURTHEST = f"topk(20, {BY_TOPIC} (mm2py_partition_lag_records{{{DATA}}}))"
MOST_TO_READ = f"topk(20, {BY_GROUP} (mm2py_consumer_group_distance_records{{{WHICH}}}))"
JAVA = "kafka_connect_mirror_source_connector_"
LOSS = (
    "After so long, at the earliest, a source may delete a record that is not copied. "
    "Empty while none has waited for half of the time that its source keeps it."
)
STATES = (
    "0 starting, 1 running, 2 draining, 3 drained, 4 restarting, 5 failed, 6 paused, 7 stopped, 8 standby, "
    "9 unreachable, 10 has failures"
)


def flow_lines(title: str, expr: str, unit: str = "short", about: str = "", **more: Any) -> Any:
    """Lines, one for each flow."""
    return lines(title, Query(expr, FLOW), unit=unit, about=about, **more)


def state_of(metric: str, by: str) -> str:
    """Return the greatest state of the nodes that do not stand by for another one, 8 if all do."""
    return f"max by ({by}) ({metric}{{{WHICH}}} < 8) or max by ({by}) ({metric}{{{WHICH}}})"


GLANCE = Row(
    "At a glance",
    (
        number("Nodes that answer", 'sum(up{job=~"$job"})'),
        number(
            "Flows that run",
            f"count({OF_FLOW} (mm2py_flow_state{{{WHICH}}} == 1)) or vector(0)",
        ),
        number(
            "Flows or connectors that failed",
            f"(count({OF_FLOW} (mm2py_flow_state{{{WHICH}}} == 5)) or vector(0)) + (count("
            f"max by (job, source, target, connector) (mm2py_connector_state{{{WHICH}}} == 5)) or vector(0))",
            limits=(1, 1),
            about="Down until an operator restarts them.",
        ),
        number("Partitions that stopped", f'sum(mm2py_flow_partitions{{{WHICH},stage="stopped"}})', limits=(1, 1)),
        number("Lag", f"sum(mm2py_flow_lag_records{{{WHICH}}})", about="Records not copied yet."),
        number("Behind", f"max(mm2py_flow_lag_seconds{{{WHICH}}})", unit="s", limits=(60, 600)),
        number("Records", f"sum(rate(mm2py_flow_records_total{{{WHICH}}}[$__rate_interval]))", unit="cps"),
        number("Bytes", f"sum(rate(mm2py_flow_bytes_total{{{WHICH}}}[$__rate_interval]))", unit="Bps"),
        number(
            "Until loss",
            f"min(mm2py:topic_retention_loss_seconds{{{WHICH}}})",
            unit="s",
            limits=(21600, 3600),
            about=LOSS,
        ),
        number(
            "Clusters away",
            f"count(min by (job, cluster) (mm2py_cluster_reachable{{{WHICH}}}) == 0) or vector(0)",
            limits=(1, 1),
        ),
        number(
            "Partitions missing",
            f"sum({OF_FLOW} (mm2py_flow_missing_destination_partitions{{{WHICH}}}))",
            limits=(1, 1),
        ),
        number(
            "Since the last heartbeat", f"max(mm2py_heartbeat_emit_age_seconds{{{WHICH}}})", unit="s", limits=(10, 60)
        ),
    ),
)
LAG = Row(
    "Lag",
    (
        flow_lines("Lag", f"{BY_FLOW} (mm2py_flow_lag_records{{{WHICH}}})", about="Records not copied yet."),
        flow_lines(
            "Behind",
            f"max by (source, target) (mm2py_flow_lag_seconds{{{WHICH}}})",
            "s",
            "For how long the oldest record that is not copied has waited.",
        ),
        flow_lines(
            "Until it has caught up",
            f"max by (source, target) (mm2py_flow_catch_up_seconds{{{WHICH}}})",
            "s",
            "At the rates of the last epochs. Nothing is shown while what is left does not shrink.",
        ),
        table(
            "The twenty topics furthest behind",
            Query(FURTHEST),
            Query(f"max by (source, target, topic) (mm2py_partition_lag_seconds{{{DATA}}}) and {FURTHEST}"),
            Query(f"{BY_TOPIC} ({JAVA}record_rate{{{DATA}}}) and {FURTHEST}"),
            names=(
                ("source", "Source"),
                ("target", "Target"),
                ("topic", "Remote topic"),
                ("Value #A", "Lag"),
                ("Value #B", "Behind (s)"),
                ("Value #C", "Records/s"),
            ),
        ),
        flow_lines(
            "Until records are lost",
            f"min by (source, target) (mm2py:topic_retention_loss_seconds{{{WHICH}}})",
            "s",
            LOSS,
            width=12,
        ),
    ),
)
COPIED = Row(
    "Throughput",
    (
        flow_lines("Records", f"{BY_FLOW} (rate(mm2py_flow_records_total{{{WHICH}}}[$__rate_interval]))", "cps"),
        flow_lines("Bytes", f"{BY_FLOW} (rate(mm2py_flow_bytes_total{{{WHICH}}}[$__rate_interval]))", "Bps"),
        lines(
            "Batches by how they travel",
            Query(f"sum by (handling) (rate(mm2py_flow_batches_total{{{WHICH}}}[$__rate_interval]))", "{{handling}}"),
            unit="cps",
            about="Rebuilt ones cost more: they were opened, because they could not go as they were.",
            stacked=True,
        ),
        lines(
            "Topics with the most records",
            Query(f"topk(10, {BY_TOPIC} ({JAVA}record_rate{{{DATA}}}))", "{{topic}}"),
            unit="cps",
            width=12,
        ),
        lines(
            "Partitions by how they fare",
            Query(f"sum by (stage) (mm2py_flow_partitions{{{WHICH}}})", "{{stage}}"),
            width=12,
            stacked=True,
        ),
    ),
)
TROUBLE = Row(
    "Trouble",
    (
        flow_lines("State of flows", state_of("mm2py_flow_state", "source, target"), about=STATES),
        lines(
            "State of connectors",
            Query(state_of("mm2py_connector_state", "source, target, connector"), f"{FLOW} {{{{connector}}}}"),
            about=STATES,
        ),
        lines(
            "Restarts",
            Query(
                "sum by (source, target, connector) "
                f"(increase(mm2py_connector_failed_restart_attempts_total{{{WHICH}}}[$__rate_interval]) "
                f"+ increase(mm2py_connector_task_failed_restart_attempts_total{{{WHICH}}}[$__rate_interval]))",
                f"{FLOW} {{{{connector}}}}",
            ),
            about="Task groups that failed, and copy tasks that lost an epoch.",
        ),
        lines(
            "History that broke",
            *(
                Query(f"sum(increase(mm2py_{name}_total{{{WHICH}}}[$__rate_interval]))", words)
                for name, words in (
                    ("source_truncations", "source truncated"),
                    ("source_recreations", "source topic created again"),
                    ("source_expirations", "expired before they were copied"),
                    ("target_rewinds", "target truncated"),
                    ("target_recreations", "remote topic created again"),
                )
            ),
        ),
        lines(
            "Steps that failed",
            Query(
                f"sum by (source, target, step) (increase(mm2py_step_failures_total{{{WHICH}}}[$__rate_interval]))",
                f"{FLOW} {{{{step}}}}",
            ),
        ),
        lines(
            "Events",
            Query(f"sum by (event) (increase(mm2py_events_total{{{WHICH}}}[$__rate_interval]))", "{{event}}"),
            about="docs/events.md explains each.",
        ),
        lines(
            "Heartbeats",
            Query(f"max by (source, target) (mm2py_heartbeat_emit_age_seconds{{{WHICH}}})", f"{FLOW} written"),
            Query(f"max by (source, target, topic) (mm2py_heartbeat_age_seconds{{{WHICH}}})", "{{topic}} copied"),
            unit="s",
            about="Age of the last one written, and of the newest one copied, hop by hop.",
        ),
        flow_lines(
            "Throttled by quotas", f"max by (source, target) (mm2py:flow_throttled_ratio{{{WHICH}}})", "percentunit"
        ),
        lines(
            "Kept out, or away",
            Query(
                f"sum by (cluster) (increase(mm2py_authentication_errors_total{{{WHICH}}}[$__rate_interval]))",
                "{{cluster}} keeps out",
            ),
            Query(f"sum by (cluster) (1 - mm2py_cluster_reachable{{{WHICH}}})", "{{cluster}} away"),
        ),
    ),
)
LATENCY = Row(
    "Latency and age",
    tuple(
        flow_lines(
            title,
            f"histogram_quantile({share}, sum by (source, target, le) "
            f"(rate(mm2py_{name}_seconds_bucket{{{WHICH}}}[$__rate_interval])))",
            "s",
            f"From a record's timestamp until {until}. It says what the timestamps say.",
            width=6,
        )
        for title, share, name, until in (
            ("Latency, median", 0.5, "replication_latency", "the target had it"),
            ("Latency, 99th percentile", 0.99, "replication_latency", "the target had it"),
            ("Age when read, median", 0.5, "record_age", "it was read from the source"),
            ("Age when read, 99th percentile", 0.99, "record_age", "it was read from the source"),
        )
    ),
)
GROUPS = Row(
    "Consumer groups",
    (
        table(
            "The twenty groups with the most to read at the target",
            Query(MOST_TO_READ),
            Query(f"{BY_GROUP} (mm2py_consumer_group_untranslated_partitions{{{WHICH}}}) and {MOST_TO_READ}"),
            names=(
                ("source", "Source"),
                ("target", "Target"),
                ("group", "Group"),
                ("Value #A", "Left to read"),
                ("Value #B", "Partitions without translation"),
            ),
        ),
        lines(
            "Groups by how they fare at the target",
            Query(f"sum by (at_target) (mm2py_consumer_groups{{{WHICH}}})", "{{at_target}}"),
            width=6,
            stacked=True,
        ),
        flow_lines(
            "Since the last checkpoints",
            "time() - max by (source, target) "
            f'(mm2py_last_success_timestamp_seconds{{{WHICH},step="write checkpoints"}})',
            "s",
            width=6,
        ),
    ),
    is_folded=True,
)
TASKS = Row(
    "Copy tasks, Spark and the process",
    (
        lines(
            "State of copy tasks",
            Query(f"max by (source, target, task) (mm2py_task_state{{{WHICH}}})", f"{FLOW} {{{{task}}}}"),
            about="0 idle, 1 running, 2 waiting for a slot, 3 backing off, 4 late",
        ),
        lines(
            "Spark's slots",
            Query('sum(mm2py_spark_slots_used{job=~"$job"})', "used"),
            Query('sum(mm2py_spark_slots_free{job=~"$job"})', "free"),
            Query('sum(mm2py_spark_epochs_waiting{job=~"$job"})', "epochs that wait"),
        ),
        lines(
            "Between epochs",
            Query(
                f"sum by (source, target) (rate(mm2py_task_boundary_seconds_total{{{WHICH}}}[$__rate_interval])) "
                f"/ sum by (source, target) (rate(mm2py_task_epochs_total{{{WHICH}}}[$__rate_interval]))",
                FLOW,
            ),
            unit="s",
            about="Time at an epoch's boundary in which nothing is copied.",
        ),
        lines(
            "CPU",
            Query(f"sum by (source, target) (rate(mm2py_task_cpu_seconds_total{{{WHICH}}}[$__rate_interval]))", FLOW),
            Query('rate(process_cpu_seconds_total{job=~"$job"}[$__rate_interval])', "daemon {{instance}}"),
            about="Cores: of the copy tasks' workers, and of the daemon's own process.",
        ),
        lines(
            "Memory",
            Query(f"sum by (source, target) (mm2py_task_resident_memory_bytes{{{WHICH}}})", FLOW),
            Query('process_resident_memory_bytes{job=~"$job"}', "daemon {{instance}}"),
            unit="bytes",
        ),
        lines(
            "Requests",
            Query(f"sum(rate(mm2py_task_fetch_requests_total{{{WHICH}}}[$__rate_interval]))", "fetch"),
            Query(f"sum(rate(mm2py_task_produce_requests_total{{{WHICH}}}[$__rate_interval]))", "produce"),
            Query(f"sum(rate(mm2py_task_retries_total{{{WHICH}}}[$__rate_interval]))", "tried again"),
            unit="cps",
        ),
    ),
    is_folded=True,
)
NODES = Row(
    "Nodes",
    (
        flow_lines(
            "Nodes that answer",
            f"max by (source, target) (mm2py_flow_nodes{{{WHICH}}})",
            about="Nodes that run the flow, by what each knows of the others.",
        ),
        lines(
            "Copy tasks of each node",
            Query(f"max by (source, target, node, host, id) (mm2py_node_tasks{{{WHICH}}})", f"{FLOW} {{{{node}}}}"),
            stacked=True,
        ),
        lines(
            "Bytes of each node",
            Query(
                f"sum by (instance, source, target) (rate(mm2py_flow_bytes_total{{{WHICH}}}[$__rate_interval]))",
                f"{FLOW} {{{{instance}}}}",
            ),
            unit="Bps",
            stacked=True,
        ),
    ),
    is_folded=True,
)
ROWS = (GLANCE, LAG, COPIED, TROUBLE, LATENCY, GROUPS, TASKS, NODES)


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    """Return a variable whose values come from a label, all of them chosen at first."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Of jobs only those that are listed: other programs' metrics are called up and process_… too.
        "allValue": None if name == "job" else ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
        "hide": 0,
    }


def dashboard() -> dict[str, Any]:
    """Return the whole dashboard."""
    datasource = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
        "options": [],
        "hide": 0,
    }
    return {
        "title": "mm2py",
        "uid": "mm2py-flows",
        "tags": ["kafka", "mirrormaker", "mm2py"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "fiscalYearStartMonth": 0,
        "templating": {
            "list": [
                datasource,
                variable("job", "Job", "label_values(mm2py_build_info, job)"),
                variable("source", "Source", 'label_values(mm2py_flow_state{job=~"$job"}, source)'),
                variable("target", "Target", 'label_values(mm2py_flow_state{job=~"$job",source=~"$source"}, target)'),
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "Alerts",
                    "datasource": DATASOURCE,
                    "enable": True,
                    "hide": False,
                    "iconColor": "red",
                    "expr": 'ALERTS{alertname=~"Mm2py.*",alertstate="firing"}',
                    "titleFormat": "{{alertname}}",
                    "textFormat": f"{FLOW} {{{{topic}}}}",
                    "step": "60s",
                }
            ]
        },
        "links": [],
        "panels": lay_out(ROWS),
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1, ensure_ascii=False)
    print()
