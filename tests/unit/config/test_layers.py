"""Which of several lines for a key counts."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import pytest

from mm2py.config.connector import MirrorSourceConfig
from tests.support.config_files import ConfigFile


_TASKS, _FETCH = attrgetter("copying.tasks_max"), attrgetter("limits.fetch_min_bytes")
_SEND, _KEEP = attrgetter("limits.produce_request_max_bytes"), attrgetter("offset_storage.partitions")


@pytest.mark.parametrize(
    ("field", "lines", "expected"),
    [
        # Keys of a flow: default < top level < flow; a cluster's line does not count.
        (_TASKS, ["tasks.max = 4"], 4),
        (_TASKS, ["tasks.max = 4", "A->B.tasks.max = 7"], 7),
        (_TASKS, ["A->B.tasks.max = 7", "tasks.max = 4"], 7),
        (_TASKS, ["A.tasks.max = 9", "B.tasks.max = 9", "B->A.tasks.max = 9"], 1),
        # Keys of a consumer, as Java resolves them: the flow's plain line < the source cluster's < the flow's source.
        (_FETCH, ["A->B.consumer.fetch.min.bytes = 2"], 2),
        (_FETCH, ["A->B.consumer.fetch.min.bytes = 2", "A.consumer.fetch.min.bytes = 3"], 3),
        (_FETCH, ["A.consumer.fetch.min.bytes = 3", "A->B.source.consumer.fetch.min.bytes = 4"], 4),
        (_FETCH, ["consumer.fetch.min.bytes = 2", "B.consumer.fetch.min.bytes = 2", "A.fetch.min.bytes = 2"], 1),
        # Keys of a producer: the flow's plain line (ours) < the target cluster's < the flow's override, as in Java.
        (_SEND, ["A->B.producer.max.request.size = 2"], 2),
        (_SEND, ["A->B.producer.max.request.size = 2", "B.producer.max.request.size = 3"], 3),
        (_SEND, ["B.producer.max.request.size = 3", "A->B.producer.override.max.request.size = 4"], 4),
        (_SEND, ["A.producer.max.request.size = 2", "producer.max.request.size = 2"], 1_048_576),
        # Keys of the runtime belong to the target cluster, and the top level beats it for some, as in Java.
        (_KEEP, ["B.offset.storage.partitions = 2"], 2),
        (_KEEP, ["B.offset.storage.partitions = 2", "offset.storage.partitions = 3"], 3),
        (_KEEP, ["A.offset.storage.partitions = 2", "A->B.offset.storage.partitions = 2"], 25),
    ],
)
def test_which_of_several_lines_counts(
    config: ConfigFile, field: Callable[[MirrorSourceConfig], int], lines: list[str], expected: int
) -> None:
    """Precedence is MirrorMaker's, whatever the order of the file."""
    assert field(config.flow(*lines).source_connector) == expected


@pytest.mark.parametrize(
    ("lines", "source", "target"),
    [
        ("bootstrap.servers = t:1", ("t:1",), ("b:1",)),
        ("A.bootstrap.servers = a:1", ("a:1",), ("b:1",)),
        ("A.bootstrap.servers = a:1\nbootstrap.servers = t:1", ("a:1",), ("b:1",)),
        ("A.bootstrap.servers = a:1\nA.consumer.bootstrap.servers = c:1", ("c:1",), ("b:1",)),
        ("bootstrap.servers = t:1\nA->B.source.cluster.bootstrap.servers = f:1", ("t:1",), ("b:1",)),
        (
            "A->B.source.cluster.bootstrap.servers = f:1\nB->A.target.cluster.bootstrap.servers = f:1",
            ("f:1",),
            ("b:1",),
        ),
        ("A.bootstrap.servers = a:1\nA->B.producer.override.bootstrap.servers = p:1", ("a:1",), ("p:1",)),
    ],
)
def test_a_clusters_line_beats_the_top_level(
    config: ConfigFile, lines: str, source: tuple[str, ...], target: tuple[str, ...]
) -> None:
    """Client keys of a cluster: the client's own line < … as Java spreads them over its clients."""
    flow = config.flow(f"clusters = A, B\nA->B.enabled = true\nB.bootstrap.servers = b:1\n{lines}", base="")

    assert (source, target) == (flow.source.bootstrap_servers, flow.target.bootstrap_servers)


def test_overrides_beat_the_file(config: ConfigFile) -> None:
    """An override is a line after the last one, and is named as the origin."""
    settings = config.load("A->B.tasks.max = 2", overrides={"A->B.tasks.max": "3", "log.level": "debug"})

    assert (settings.flows[0].source_connector.copying.tasks_max, settings.log_level) == (3, "debug")
    assert ("3", "--override, A->B.tasks.max") in {(row.value, row.origin) for row in settings.effective}
