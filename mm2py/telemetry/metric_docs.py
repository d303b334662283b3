"""
The metrics as documentation.

``python -m mm2py.telemetry.metric_docs`` prints ``docs/metrics.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from mm2py.telemetry.metric_rows import CHAPTERS, Chapter


_INTRODUCTION = """# Metrics

This page is made from the rows in `mm2py/telemetry/metric_rows.py` by
`python -m mm2py.telemetry.metric_docs > docs/metrics.md`.

A node gives its metrics at `/metrics`: in Prometheus's text format, in OpenMetrics to whoever asks for
`application/openmetrics-text`, and as JSON to whoever asks for `application/json`. `/cluster/X/metrics` and
`/from:A/to:B/metrics` give the part of them that is about a cluster or a flow, as JSON. All come from the same numbers,
taken at most once a second; nothing is counted per record.

```yaml
scrape_configs:
  - job_name: mm2py
    static_configs:
      - targets: [mirror-1:8083]
```

## How to read them

- *Labels.* `source` and `target` are the aliases of a flow's clusters. `topic` is the remote topic, as in Java. The
  metrics with Java's names have the target as `destination` too, because the rules that many feed to the JMX exporter
  name it so: a dashboard made for either label works.
- *As of when.* What is copied is accounted for at the end of each epoch (`copy.epoch.ms`, 5 s), so numbers are that old
  at most. End offsets are those of the last answer from the source; of partitions that are not being read at the
  moment, because they are paused or stopped, the source is asked every ten seconds.
- *Since when.* Counts begin at 0 when the daemon starts, and go on when a flow's task groups restart, when
  partitions change hands, and when settings are reloaded. Records that a lost epoch had copied are counted once they
  are found at the target; those that an earlier daemon had copied are not.
- *`NaN`.* Minima, maxima and means of nothing are `NaN`, as in Java: an idle partition is in sync. Counters never are.
  What is not known, a lag in seconds before anything was copied for instance, has no series.
- *Bytes* are those of record batches as they travel, compressed, with their headers. Java counts bytes of record values
  after decompression, which a mirror that does not open batches cannot know.
- *Age and latency* count each record with the timestamp of the newest record in its batch. They say what the timestamps
  say: where producers set these themselves, or clocks differ, so do they. Records without a timestamp are left out, and
  what a clock that is ahead would make negative is 0.
- *Lag in seconds* is the time since the last record copied, or since there was nothing left to copy, whichever is
  shorter: an upper bound.
- *Retention loss* is how long the source keeps a record that came now, less the lag in seconds; where
  `retention.bytes` is set, also when what comes at the source, at its present pace and with records as large as those
  copied so far, will have filled it. Sources delete whole segments, so records are mostly there for longer. There is
  no series where the source deletes nothing, where the mirror may not read the topic's configs, or where nothing was
  copied yet that tells how old records are.

## Many partitions

`metrics.partitions.max` partitions have series of their own, those that were there first. What is beyond is rolled up
into one series for each topic, without the label `partition`; topics beyond `metrics.topics.max` are rolled up into one
series for the flow, without `topic`. A rolled-up series carries only what has no series of its own, so a sum over all
series is the truth, and a partition that was rolled up once stays so: no count goes back. Counts, rates and lags in
records are added up; of times the greatest counts, of minima and of what is left until loss the least. Offsets and
stages of single partitions are not rolled up.

## Where Java's are not right

- The checkpoint latencies of all of a task's groups go into one sensor there; here each group has its own.
- `record-count` starts again there with each task, so after each rebalance.
- `byte-count` is recorded there when records are read, before they are known to be at the target.
- A record whose timestamp lies ahead of the clock makes ages and latencies negative there.
- `replication-latency-ms` and `record-age-ms` (the last value) are 0 there before the first record; here `NaN`.
- There is no lag there, no age of heartbeats, nothing about errors of syncs, and no last success.
"""

_HEAD = "| metric | type | labels | meaning | elsewhere |\n|---|---|---|---|---|"


def render() -> str:
    """Return the page."""
    return "\n".join(["\n\n".join([_INTRODUCTION.rstrip(), *map(_chapter, CHAPTERS)]), ""])


def _chapter(chapter: Chapter) -> str:
    return "\n".join(_lines(chapter))


def _lines(chapter: Chapter) -> Iterator[str]:
    yield f"## {chapter.title}\n"
    if chapter.text:
        yield f"{chapter.text}\n"
    yield _HEAD
    for metric in chapter.metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        java = metric.java or ""
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} | {java} |"


if __name__ == "__main__":
    sys.stdout.write(render())
