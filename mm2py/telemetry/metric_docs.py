"""
The metrics as documentation.

``python -m mm2py.telemetry.metric_docs`` prints ``docs/metrics.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from mm2py.telemetry.metric_rows import CHAPTERS, Chapter


_INTRODUCTION = """# Metrics

This page is generated from the rows in `mm2py/telemetry/metric_rows.py` by
`python -m mm2py.telemetry.metric_docs > docs/metrics.md`.

A node serves its metrics at `/metrics`: in Prometheus's text format, in OpenMetrics for clients that accept
`application/openmetrics-text`, and as JSON for clients that accept `application/json`. `/cluster/X/metrics` and
`/from:A/to:B/metrics` have those of a cluster or a flow, as JSON. All come from the same snapshot, taken at most once
a second; nothing is counted per record.

```yaml
scrape_configs:
  - job_name: mm2py
    static_configs:
      - targets: [mirror-1:8083]
```

With `listeners = http://127.0.0.1:8083, http://:3600` they are at a JMX exporter's port as well, and Prometheus's
configuration may stay as it is.

## How to read them

- *Java's names* are `kafka_connect_mirror_source_connector_…` and `kafka_connect_mirror_checkpoint_connector_…`, by JMX
  exporter rules in common use. Strimzi's rules and metrics reporter, and the exporter with `lowercaseOutputName` and no
  rules, write `kafka_connect_mirror_mirrorsourceconnector_…` and `kafka_connect_mirror_mirrorcheckpointconnector_…`:
  for dashboards and alerts with those, have Prometheus [rename them](#strimzis-names).
- *Labels.* `source` and `target` are the aliases of a flow's clusters. `topic` is the remote topic, as in Java. The
  metrics with Java's names have the target as `destination` too, its name in commonly used JMX exporter rules:
  dashboards for either label work.
- *Freshness.* Copied records are accounted for at the end of each epoch (`copy.epoch.ms`, 10 s), so figures are at
  most that old. End offsets are those of the last answer from the source; for partitions that are not being read at
  the moment, because they are paused or stopped, the source is queried every ten seconds.
- *Start of counting.* Counters begin at 0 when the daemon starts, and continue when a flow's task groups restart, when
  partitions change tasks, and when settings are reloaded; only failures of steps, failures of task groups and written
  heartbeats of a flow begin again when its own settings change. Records that a lost epoch had copied are counted once
  they are found at the target; those that an earlier daemon had copied are not.
- *`NaN`.* Minima, maxima and means without data are `NaN`, as in Java: an idle partition is in sync. Counters are
  never `NaN`. Unknown values, for instance a lag in seconds before anything was copied, have no series.
- *Bytes* are those of record batches as sent, compressed, with their headers. Java counts bytes of record values
  after decompression, which a mirror that does not open batches cannot know.
- *Age and latency* count each record with the timestamp of the newest record in its batch. They depend on the
  timestamps: if producers set these themselves, or clocks differ, they are off by as much. Records without a timestamp
  are not counted, and values that a clock ahead would make negative are 0.
- *Lag in seconds* is the time since the last copied record, or since there was nothing left to copy, whichever is
  shorter: an upper bound.
- *Retention loss* is the source's retention time less the lag in seconds; with `retention.bytes`, also the time until
  new records, at the current rate and with the average size of those copied so far, fill it. Sources delete whole
  segments, so records usually stay longer. There is no series if the source deletes nothing, if the mirror may not
  read the topic's configs, or if nothing was copied yet that shows how old records are.

## Strimzi's names

```yaml
scrape_configs:
  - job_name: mm2py
    static_configs:
      - targets: [mirror-1:8083]
    metric_relabel_configs:
      - source_labels: [__name__]
        regex: kafka_connect_mirror_(source|checkpoint)_connector_(.+)
        target_label: __name__
        replacement: kafka_connect_mirror_mirror${1}connector_${2}
```

Dashboard, rules and alerts of mm2py need the names without this. Figures of Java's own consumers, producers and JVM do
not exist here; what most dashboards show of them is in other metrics, which may be renamed in the same way:
`mm2py_partition_lag_records` for `kafka_consumer_fetch_manager_records_lag`, and `mm2py_flow_bytes_total` for
`kafka_consumer_incoming_byte_total` and `kafka_producer_outgoing_byte_total`.

## Many partitions

The first `metrics.partitions.max` partitions that a node copies have series of their own; those that other nodes take,
or that are deleted, make room for others. Further ones are rolled up into one series for each topic, without the label
`partition`; topics beyond `metrics.topics.max` are rolled up into one series for the flow, without `topic`. A
rolled-up series contains only partitions without a series of their own, so the sum over all series is correct. A
rolled-up partition stays rolled up, and what it has copied still counts once another node has it, so no counter goes
back; what it has copied before, in a series of its own, is not counted once more. Counts, rates, offsets and lags in
records are added up; of times the maximum is taken, of minima the minimum. The time until loss is the least of those
partitions that have used up more than half of what retention gives them; if there are none, there is no series. The
stage is the least: 3 means that all are paused. Histograms and metrics of flows are the same whatever the limits are,
and the dashboard, the rules and the alerts work with each choice. Beyond `metrics.topics.max` they name the flow
instead of the topic, and `Mm2pyLagGrowing` leaves out paused topics only if all of them are paused.

Clients that accept it, such as Prometheus, get `/metrics` compressed, to less than a tenth. Before that its size for
1 500 topics with names of 28 characters is, measured:

| `metrics.partitions.max` | `metrics.topics.max` | series of | 1 partition each | 4 partitions each |
|---|---|---|---|---|
| 2000 (default) | 1000 (default) | the first 2 000 partitions, then topics | 3.8 MB | 7.1 MB |
| 10000 | any | each partition | 3.8 MB | 15.0 MB |
| 0 | 10000 | each topic | 3.2 MB | 3.2 MB |
| 0 | 1000 | the first 1 000 topics | 2.2 MB | 2.2 MB |
| 0 | 200 | the first 200 topics | 0.5 MB | 0.5 MB |
| 0 | 0 | each flow | 0.03 MB | 0.03 MB |

## Where Java's metrics differ

- Java puts the checkpoint latencies of all of a task's groups into one sensor; here each group has its own.
- Java's `record-count` restarts with each task, so after each rebalance.
- Java records `byte-count` when records are read, before they are known to be at the target.
- A record whose timestamp is ahead of the clock makes ages and latencies negative in Java.
- Java's `replication-latency-ms` and `record-age-ms` (the last value) are 0 before the first record; here `NaN`.
- Java has no lag, no age of heartbeats, no counts of sync errors, and no last success.

## From Mirus

Each MBean of Mirus, `mirus:type=…`, has its metric here:

| type | attribute | metric |
|---|---|---|
| MirusSourceConnector | `replication-latency-ms`, `-max`, `-min`, `-avg` | the same as of Java's connector, below |
| MirusSourceConnector | `replication-latency-histogram` | `mm2py_replication_latency_seconds` |
| mirus | `missing-dest-partitions-count` | `mm2py_flow_missing_destination_partitions` |
| connector-metrics | `running-task-count` and those of the other states | `mm2py_connector_tasks` |
| connector-metrics | `connector-failed-restart-attempts-count` | `mm2py_connector_failed_restart_attempts_total` |
| connector-metrics | `task-failed-restart-attempts-count` | `mm2py_connector_task_failed_restart_attempts_total` |
| connector-task-metrics | `task-failed-restart-attempts-count` | `mm2py_task_failed_restart_attempts_total` |

- Mirus has latencies for each topic, and none if it renames topics. Here they are for each partition:
  `max by (topic) (kafka_connect_mirror_source_connector_replication_latency_ms_max)`. The histogram is for each flow.
- Mirus's histogram counts records per second that took a limit *or longer*, Prometheus's those that took it or less.
  Mirus's limits are among ours. Ten minutes or longer is
  `rate(mm2py_replication_latency_seconds_count[5m]) - on (source, target)
  rate(mm2py_replication_latency_seconds_bucket{le="600.0"}[5m])`.
- mm2py creates missing partitions, so their number is above 0 for a moment only, unless the target refuses.
- Mirus also counts restarts that it does not attempt, because they are disabled. Here they cannot be disabled.
"""

_HEAD = "| metric | type | labels | meaning | elsewhere |\n|---|---|---|---|---|"


def render() -> str:
    """Return the page as Markdown."""
    return "\n".join(["\n\n".join([_INTRODUCTION.rstrip(), *("\n".join(_lines(chapter)) for chapter in CHAPTERS)]), ""])


def _lines(chapter: Chapter) -> Iterator[str]:
    yield f"## {chapter.title}\n"
    if chapter.text:
        yield f"{chapter.text}\n"
    yield _HEAD
    for metric in chapter.metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} | {metric.java} |"


if __name__ == "__main__":
    sys.stdout.write(render())
