"""The daemon's life: how it starts, what it refuses, what it mirrors of what it sees, how it waits, how it ends."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.brokers import TEST_PROPERTIES
from tests.support.daemon import Daemon, daemon, shared_daemon
from tests.support.eventually import eventually, scaled
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.topics import create_topic, list_topics


_SHORT_EPOCHS = {"copy.epoch.ms": 1000}
_NO_SERVER = "127.0.0.1:1"

# --- ending -----------------------------------------------------------------------------------------------------------


async def test_signals_drain(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """SIGTERM and SIGINT in a running stream write the positions and exit with 0; the next start goes on exactly."""
    settings = mm2_properties(
        primary.bootstrap_servers, backup.bootstrap_servers, **{"A->B.topics": prefix, "tasks.max": 2}
    )
    await create_topic(primary.bootstrap_servers, prefix, partitions=4)
    stream_of = numbered_stream(
        primary.bootstrap_servers, prefix, count=10_000, partitions=4, rate=2_000, open_ended=True
    )
    async with stream_of as stream:
        lives = []
        for number in (signal.SIGTERM, signal.SIGINT):
            async with daemon(tmp_path, settings) as life:
                await life.wait_for_event("spark_started")
                await await_arrived(backup.bootstrap_servers, f"A.{prefix}", stream.sent)
                lives.append((life, await life.send_signal(number), life.log_text()))
        async with daemon(tmp_path, settings) as last:
            count = await stream.done()
            await assert_mirrored(primary.bootstrap_servers, prefix, backup.bootstrap_servers, f"A.{prefix}", count)
            found = await last.wait_for_event("positions_read")
            exit_code = await last.sigterm()

    assert [*(code for _, code, _ in lives), exit_code] == [0, 0, 0]
    assert (found["found"], found["fresh"]) == (4, 0)
    log = last.log_text() + "".join(text for *_, text in lives)
    assert log.count('"positions_written": true') == log.count('"is_drained": true') == 3
    assert "resumed_exactly" not in log
    assert "resume_unproven" not in log


async def test_signal_while_starting(primary: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """A daemon that is told to stop before its Spark is up and while a cluster does not answer ends with 0."""
    settings = mm2_properties(primary.bootstrap_servers, _NO_SERVER, **{"A->B.topics": prefix})
    async with daemon(tmp_path, settings) as running:
        await running.wait_for_event("cluster_unreachable", cluster="B")

        assert await running.sigterm(within_s=20) == 0
        assert not list(running.events("flow_failed"))


async def test_nothing_left_to_mirror(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """A node whose only flow has failed for good ends with 2 and drains what still emits heartbeats."""
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        aliases=("gone", "left"),
        **{
            "gone->left.topics": prefix,
            "replication.policy.class": "nowhere.LostPolicy",
            # The other direction has a policy that can be loaded, and so heartbeats.
            "left->gone.replication.policy.class": "default",
            "emit.heartbeats.enabled": "true",
        },
    )
    async with daemon(tmp_path, settings) as running:
        exit_code = await running.wait(within_s=60)

        assert exit_code == 2
        assert [event["flow"] for event in running.events("flow_failed")] == ["gone->left"]
        assert next(running.events("daemon_stopped"))["is_drained"]


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_unreachable_cluster(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    Of two flows in one file the one whose source is away keeps trying while the other copies.

    Each absence is said once, and so is its end; neither keeps the daemon from draining.
    """
    late = KafkaCluster("late", properties=TEST_PROPERTIES)
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        **{
            "clusters": "A, B, C",
            "C.bootstrap.servers": late.bootstrap_servers,
            "C->B.enabled": "true",
            "topics": prefix,
            **_SHORT_EPOCHS,
        },
    )
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
    try:
        async with daemon(tmp_path, settings) as running:
            await running.wait_for_event("cluster_unreachable", cluster="C", flow="C->B")
            await await_arrived(backup.bootstrap_servers, f"A.{prefix}", 1_000)
            assert not list(running.events("cluster_recovered"))

            await asyncio.to_thread(late.start_all)
            await create_topic(late.bootstrap_servers, prefix)
            await produce_numbers(late.bootstrap_servers, prefix, count=2_000, partitions=1)
            await running.wait_for_event("cluster_recovered", cluster="C", flow="C->B")
            await assert_mirrored(late.bootstrap_servers, prefix, backup.bootstrap_servers, f"C.{prefix}", 2_000)

            await asyncio.to_thread(late.kill, 0)
            await eventually(
                lambda: len(list(running.events("cluster_unreachable"))) == 2,
                within_s=20,
                what="the second absence is said",
            )
            await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
            await await_arrived(backup.bootstrap_servers, f"A.{prefix}", 2_000)

            assert await running.sigterm(within_s=20) == 0
            assert {"C"} == {event["cluster"] for event in running.events("cluster_unreachable")}
            assert len(list(running.events("cluster_unreachable"))) == 2
            assert len(list(running.events("cluster_recovered"))) == 1
            assert not list(running.events("task_restarted"))
    finally:
        await asyncio.to_thread(late.stop)


async def test_no_slot(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """A copy task that finds no Spark slot says so and what to do, shows it, and gets its turn."""
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        **{"A->B.topics": prefix, "tasks.max": 2, "spark.master": "local[1]", "copy.epoch.ms": 6000},
    )
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await produce_numbers(primary.bootstrap_servers, prefix, count=10_000, partitions=2)
    async with daemon(tmp_path, settings) as running:
        said = await running.wait_for_event("waiting_for_slot", flow="A->B")

        def shown() -> bool:
            states = [task["state"] for task in running.flow_view()["tasks"]]
            return sorted(states) == ["running", "waiting_for_slot"]

        await eventually(shown, within_s=10, what="one copy task runs and the other one waits")
        await assert_mirrored(primary.bootstrap_servers, prefix, backup.bootstrap_servers, f"A.{prefix}", 10_000)

        assert said["level"] == "warn"
        assert "tasks.max" in said["hint"]


# --- refusing ---------------------------------------------------------------------------------------------------------


def _mm2(tmp_path: Path, *arguments: str, **env: str) -> tuple[int, list[str], str]:
    """Run the command to its end; give the exit code, what it complains about, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "mm2py.cli.mirror_maker", *arguments],
        capture_output=True,
        text=True,
        timeout=scaled(60),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **env},
        check=False,
    )
    return done.returncode, done.stderr.splitlines(), done.stdout


_TWO_CLUSTERS = f"clusters = A, B\nA.bootstrap.servers = {_NO_SERVER}\nB.bootstrap.servers = {_NO_SERVER}\n"

_NO_HEARTBEATS = _TWO_CLUSTERS + "emit.heartbeats.enabled = false\n"


@attrs.frozen
class _Refused:
    """A command line that is refused: file content (None: no such file), arguments, exit code and the one line."""

    content: str | None
    arguments: tuple[str, ...]
    exit_code: int
    line: str


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(
            _Refused(None, (), 2, "mm2.properties: cannot be read: No such file or directory"), id="no such file"
        ),
        pytest.param(
            _Refused(_TWO_CLUSTERS + "A->B.enabled = true\n", ("--clusters", "Z"), 2, "--clusters: Z: unknown cluster"),
            id="unknown alias",
        ),
        pytest.param(
            _Refused(_NO_HEARTBEATS, (), 2, "mm2.properties: No source->target replication flows."), id="no flow"
        ),
        pytest.param(
            _Refused(
                _NO_HEARTBEATS + "A->B.enabled = true\n",
                ("--clusters", "A"),
                2,
                "mm2.properties: No source->target replication flows.",
            ),
            id="no flow to that cluster",
        ),
        pytest.param(
            _Refused(
                _TWO_CLUSTERS + "A->B.enabled = true\nB->A.enabled = true\nreplication.policy.class = identity\n",
                ("--clusters", "B"),
                2,
                "mm2.properties: replication.policy.class: A->B, B->A would feed each other without end",
            ),
            id="loop",
        ),
        pytest.param(
            _Refused(
                _TWO_CLUSTERS + "A->B.enabled = true\ntasks.max = many\n",
                ("--validate",),
                2,
                "mm2.properties:5: tasks.max",
            ),
            id="validate",
        ),
    ],
)
def test_one_line_for_what_cannot_run(tmp_path: Path, refused: _Refused) -> None:
    """What cannot run ends with Java MirrorMaker's exit code and one clear line that says what to do."""
    file = tmp_path / "mm2.properties"
    if refused.content is not None:
        file.write_text(refused.content)

    exit_code, lines, _ = _mm2(tmp_path, file.name, *refused.arguments)

    assert refused.exit_code == exit_code
    assert len(lines) == 1
    assert lines[0].startswith(refused.line)


@pytest.mark.parametrize("arguments", [(), ("--colour", "mm2.properties")], ids=["no file", "unknown option"])
def test_bad_arguments(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Arguments that make no sense end with 255 and the usage, as Java MirrorMaker's do."""
    exit_code, lines, _ = _mm2(tmp_path, *arguments)

    assert exit_code == 255
    assert lines[0].startswith("usage: connect-mirror-maker")


def test_validate(tmp_path: Path) -> None:
    """``--validate`` says that a good file is good, and runs nothing."""
    (tmp_path / "mm2.properties").write_text(_TWO_CLUSTERS + "A->B.enabled = true\n")

    exit_code, lines, printed = _mm2(tmp_path, "mm2.properties", "--validate")

    assert exit_code == 0
    assert lines == []
    assert printed.splitlines()[-1] == "mm2.properties: no problems; flows: A->B; only heartbeats: B->A"


def test_no_java(tmp_path: Path) -> None:
    """Without Java the daemon does not start: exit code 3 and one line that says how to get it."""
    (tmp_path / "mm2.properties").write_text(_TWO_CLUSTERS + "A->B.enabled = true\n")

    exit_code, lines, _ = _mm2(tmp_path, "mm2.properties", JAVA_HOME=str(tmp_path), PATH=str(tmp_path))

    (line,) = [line for line in lines if not line.startswith("{")]
    assert exit_code == 3
    assert "Java" in line


# --- choosing ---------------------------------------------------------------------------------------------------------


_HOUSE_POLICY = """
from mm2py.policy.replication import DefaultReplicationPolicy


class HousePolicy(DefaultReplicationPolicy):
    def format_remote_topic(self, source_alias, topic):
        return f"{topic}_of_{source_alias}"

    def topic_source(self, topic):
        return topic.rpartition("_of_")[2] if "_of_" in topic else None

    def upstream_topic(self, topic):
        return topic.rpartition("_of_")[0] if "_of_" in topic else None
"""


@attrs.frozen
class _Policies:
    """A daemon with flows of every policy; `tag` is in the name of every topic that they take."""

    running: Daemon
    tag: str


@pytest.fixture(scope="module")
def policies(
    primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Policies]:
    """
    Run one daemon with several flows between the same two clusters.

    The primary cluster goes by several aliases, so that each of its flows has positions and remote names of its own.
    """
    work_dir, tag = tmp_path_factory.mktemp("policies"), f"choice-{secrets.token_hex(3)}"
    (work_dir / "house.py").write_text(_HOUSE_POLICY)
    flows: dict[str, dict[str, str]] = {
        "A->B": {"topics": rf".*{tag}-(both|inner).*"},
        "B->A": {"topics": rf".*{tag}-both.*"},
        "I->B": {
            "topics": f"{tag}-same",
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        },
        "H->B": {"topics": f"{tag}-house", "replication.policy.class": "house.HousePolicy"},
        "X->B": {"topics": f"{tag}-lost", "replication.policy.class": "nowhere.LostPolicy"},
    }
    keys: dict[str, object] = {
        "clusters": "A, B, I, H, X",
        **{f"{alias}.bootstrap.servers": primary.bootstrap_servers for alias in "IHX"},
        **{f"{flow}.enabled": "true" for flow in flows},
        **{f"{flow}.{key}": value for flow, settings in flows.items() for key, value in settings.items()},
        **_SHORT_EPOCHS,
    }
    settings = mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, **keys)
    with shared_daemon(work_dir, settings) as running:
        yield _Policies(running, tag)


async def test_both_ways(primary: KafkaCluster, backup: KafkaCluster, policies: _Policies) -> None:
    """A topic of one name on both clusters is mirrored both ways, and what was mirrored does not come back."""
    topic, later = f"{policies.tag}-both", f"{policies.tag}-both-later"
    for cluster, count in ((primary, 3_000), (backup, 2_000)):
        await create_topic(cluster.bootstrap_servers, topic, partitions=2)
        await produce_numbers(cluster.bootstrap_servers, topic, count=count, partitions=2)
    await assert_mirrored(primary.bootstrap_servers, topic, backup.bootstrap_servers, f"A.{topic}", 3_000)
    await assert_mirrored(backup.bootstrap_servers, topic, primary.bootstrap_servers, f"B.{topic}", 2_000)
    # Once topics that came later are mirrored both ways, both flows have seen the first remote topics.
    for cluster in (primary, backup):
        await create_topic(cluster.bootstrap_servers, later)
    await _await_topics(primary, {f"B.{later}"})
    await _await_topics(backup, {f"A.{later}"})

    assert {topic, later, f"B.{topic}", f"B.{later}"} == await _topics_with(primary, topic)
    assert {topic, later, f"A.{topic}", f"A.{later}"} == await _topics_with(backup, topic)


async def test_internal_topics_left_out(primary: KafkaCluster, backup: KafkaCluster, policies: _Policies) -> None:
    """Of topics that the filter takes, those internal to Kafka or a mirror and those excluded by default stay away."""
    inner = f"{policies.tag}-inner"
    left_out = (f"mm2-{inner}.internal", f"{inner}.checkpoints.internal", f"__{inner}", f".{inner}", f"{inner}.replica")
    for topic in (*left_out, inner, f"{inner}.internal"):
        await create_topic(primary.bootstrap_servers, topic)
    await _await_topics(backup, {f"A.{inner}", f"A.{inner}.internal"})

    assert {f"A.{inner}", f"A.{inner}.internal"} == await _topics_with(backup, inner)


async def test_identity_policy(primary: KafkaCluster, backup: KafkaCluster, policies: _Policies) -> None:
    """With Java's IdentityReplicationPolicy a topic keeps its name."""
    topic = f"{policies.tag}-same"
    await create_topic(primary.bootstrap_servers, topic, partitions=2)
    await produce_numbers(primary.bootstrap_servers, topic, count=2_000, partitions=2)
    await assert_mirrored(primary.bootstrap_servers, topic, backup.bootstrap_servers, topic, 2_000)

    assert {topic} == await _topics_with(backup, topic)


async def test_policy_of_ones_own(primary: KafkaCluster, backup: KafkaCluster, policies: _Policies) -> None:
    """A policy given by its dotted path names the remote topics."""
    topic = f"{policies.tag}-house"
    await create_topic(primary.bootstrap_servers, topic, partitions=2)
    await produce_numbers(primary.bootstrap_servers, topic, count=2_000, partitions=2)
    await assert_mirrored(primary.bootstrap_servers, topic, backup.bootstrap_servers, f"{topic}_of_H", 2_000)

    assert {f"{topic}_of_H"} == await _topics_with(backup, topic)


async def test_failed_flow_is_alone(policies: _Policies) -> None:
    """A flow whose policy cannot be loaded is down for good and says which setting is wrong; all others run."""
    failed = await policies.running.wait_for_event("flow_failed", flow="X->B")
    for flow in ("A->B", "B->A", "I->B", "H->B"):
        await policies.running.wait_for_event("flow_started", flow=flow)

    assert "nowhere.LostPolicy" in failed["error"]
    assert "replication.policy.class" in failed["error"]
    await eventually(lambda: policies.running.flow_view("X->B").get("state") == "failed", within_s=5, what="it shows")
    assert policies.running.flow_view("A->B")["state"] == "running"


async def _topics_with(cluster: KafkaCluster, part: str) -> set[str]:
    return {topic for topic in await list_topics(cluster.bootstrap_servers) if part in topic}


async def _await_topics(cluster: KafkaCluster, wanted: set[str]) -> None:
    async def there() -> bool:
        return wanted <= await list_topics(cluster.bootstrap_servers)

    await eventually(there, within_s=30, what=f"{cluster.name} has {wanted}")
