"""Different logins at source and target, with permissions for nothing but copying, and no secret leaks."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import start_clusters
from tests.support.certificates import Authority, Certificate
from tests.support.daemon import daemon
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.mm2_file import COPY_ONLY, mm2_properties
from tests.support.producing import produce_numbers
from tests.support.secure_clusters import USER, USER_PASSWORD, SecureCluster, secure_cluster
from tests.support.spark import python_without_mm2py, spark_cluster
from tests.support.token_endpoint import TokenEndpoint, token_endpoint
from tests.support.topics import create_topic


_RECORDS = 5_000
_ENVIRONMENT_S = 0.05
_SOURCE_RULES = ("topic {} READ,DESCRIBE",)
_TARGET_RULES = (
    "topic {}. CREATE,DESCRIBE,READ,WRITE,ALTER,DESCRIBE_CONFIGS",
    "topic mm2-offsets.{}.internal CREATE,DESCRIBE,READ,WRITE",
    "cluster kafka-cluster IDEMPOTENT_WRITE",
)


@attrs.frozen
class Pair:
    """A cluster to copy from and one to copy to; both authenticate their clients."""

    source: SecureCluster
    target: SecureCluster
    tokens: TokenEndpoint

    async def fill(self, topic: str) -> None:
        await create_topic(self.source.cluster.bootstrap_servers, topic, partitions=2)
        await produce_numbers(self.source.cluster.bootstrap_servers, topic, count=_RECORDS, partitions=2)

    async def grant(self, topic: str, source: str, target: str, alias: str) -> None:
        """Grant principals the ACLs of the handbook, for a flow from *alias*."""
        await self.source.grant(source, *(rule.format(topic) for rule in _SOURCE_RULES))
        await self.target.grant(target, *(rule.format(alias) for rule in _TARGET_RULES))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two clusters, each with an authority of its own."""
    directory = tmp_path_factory.mktemp("secure")
    ends = [secure_cluster(name, directory / name, authority=Authority(name)) for name in ("locked", "vault")]
    with ExitStack() as running:
        start_clusters([end.cluster for end in ends])
        for end in ends:
            running.callback(end.cluster.stop)
        yield Pair(ends[0], ends[1], running.enter_context(token_endpoint()))


def _of(alias: str, keys: dict[str, str]) -> dict[str, str]:
    return {f"{alias}.{name}": value for name, value in keys.items()}


def _four_ways_in(pair: Pair, client: Certificate) -> dict[str, str]:
    """Return the logins of four aliases: SCRAM and PLAIN at the source, mutual TLS and a token at the target."""
    return {
        "clusters": "A, B, C, D",
        **_of("A", pair.source.client_keys("SCRAM")),
        **_of("B", pair.target.client_keys("MUTUAL", ssl_keystore_type="PEM", ssl_keystore_location="")),
        "B.ssl.keystore.key": client.key_pem.replace("\n", "\\n"),
        "B.ssl.keystore.certificate.chain": client.pem.replace("\n", "\\n"),
        **_of("C", pair.source.client_keys("PLAIN")),
        **_of("D", pair.target.client_keys("OAUTH", sasl_jaas_config="x.OAuthBearerLoginModule required;")),
        "D.sasl.oauthbearer.token.endpoint.url": pair.tokens.url,
        "D.sasl.oauthbearer.client.credentials.client.id": pair.tokens.client,
        "D.sasl.oauthbearer.client.credentials.client.secret": pair.tokens.secret,
    }


@contextmanager
def _watched(secrets: tuple[str, ...]) -> Iterator[list[tuple[str, str]]]:
    """Look at all processes' arguments and environments all the time; return each of *secrets* seen, and where."""
    shown: list[tuple[str, str]] = []
    is_over = threading.Event()
    own = os.getpid()

    def watch() -> None:
        while not is_over.wait(_ENVIRONMENT_S):
            for entry in Path("/proc").iterdir():
                if not entry.name.isdigit() or int(entry.name) == own:
                    continue
                for kind in ("cmdline", "environ"):
                    try:
                        content = (entry / kind).read_bytes()
                    except OSError:
                        continue
                    shown.extend((secret, kind) for secret in secrets if secret.encode() in content)

    thread = threading.Thread(target=watch, name="process watch", daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        is_over.set()
        thread.join()


def _files_with(secrets: tuple[str, ...], *folders: Path, spare: set[Path]) -> list[str]:
    """Return the files below *folders* that hold one of *secrets*, other than those they were put into."""
    found = []
    for place, _, names in itertools.chain(*map(os.walk, folders)):
        for file in (Path(place, name) for name in names):
            if file in spare or not file.is_file():
                continue
            with suppress(FileNotFoundError):  # what still runs replaces and removes files
                content = file.read_bytes()
                found += [f"{file}: {secret}" for secret in secrets if secret.encode() in content]
    return found


async def test_a_different_way_in_on_each_side_and_no_secret_anywhere(pair: Pair, prefix: str, tmp_path: Path) -> None:
    """
    SCRAM over TLS to mutual TLS, and PLAIN to a token: two flows through Spark with no more than the handbook's ACLs.

    Afterwards no password, token secret or private key is in a log, Spark's event log, another file of the run, or has
    ever been in the arguments or the environment of a process.
    """
    one, two, scratch, event_log = f"{prefix}-one", f"{prefix}-two", tmp_path / "tmp", tmp_path / "spark-events"
    for folder in (scratch, event_log):
        folder.mkdir()
    client = pair.target.authority.sign("mm2")
    await pair.fill(one)
    await pair.fill(two)
    await pair.grant(one, f"User:{USER}", "User:CN=mm2,O=mm2py", "A")
    await pair.grant(two, f"User:{USER}", f"User:{pair.tokens.subject}", "C")
    keys = {
        **COPY_ONLY,
        **_four_ways_in(pair, client),
        "A->B.topics": one,
        "C->D.enabled": "true",
        "C->D.topics": two,
        "copy.epoch.ms": 1000,
        "log.level": "debug",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.authenticate.secret": "sp4rk-s3cr3t",
        "spark.local.dir": str(scratch),
    }
    key_text = client.key_pem.splitlines()[1]
    secrets = (USER_PASSWORD, pair.tokens.secret, key_text, "sp4rk-s3cr3t")
    settings = mm2_properties("x:1", "y:1", **keys)
    # What is in the daemon's environment on purpose proves that the watch sees it there.
    bait = f"b4it-{prefix}"
    with _watched((*secrets, bait)) as shown:
        async with daemon(tmp_path, settings, env={"TMPDIR": str(scratch), "BAIT": bait}) as mirror:
            for topic, alias in ((one, "A"), (two, "C")):
                await await_arrived(pair.target.cluster.bootstrap_servers, f"{alias}.{topic}", _RECORDS)
            during = _files_with(secrets, tmp_path, spare={tmp_path / "mm2.properties"})
            exit_code = await mirror.sigterm()
    source, target = pair.source.cluster.bootstrap_servers, pair.target.cluster.bootstrap_servers
    await assert_mirrored(source, one, target, f"A.{one}", _RECORDS)
    await assert_mirrored(source, two, target, f"C.{two}", _RECORDS)

    assert exit_code == 0
    assert set(shown) == {(bait, "environ")}
    assert during + _files_with(secrets, tmp_path, spare={tmp_path / "mm2.properties"}) == []
    assert any(file.stat().st_size for file in event_log.rglob("*") if file.is_file())
    assert list(mirror.events("epoch_ended"))
    assert not list(mirror.events("authentication_failed"))
    assert not list(mirror.events("step_failed"))
    assert not list(mirror.events("partition_stopped"))


async def test_secrets_reach_a_spark_cluster_by_a_shared_key(pair: Pair, prefix: str, tmp_path: Path) -> None:
    """
    On a Spark cluster a flow with a password is refused until a key is shared; then it copies.

    The password is in no argument, environment or file of the cluster's processes.
    """
    await pair.fill(prefix)
    await pair.grant(prefix, f"User:{USER}", f"User:{USER}", "E")
    key = tmp_path / "secrets.key"
    key.write_text("a key that is shared by all machines")
    key.chmod(0o600)
    python = python_without_mm2py(tmp_path)
    keys = {
        **COPY_ONLY,
        **_of("E", pair.source.client_keys("SCRAM")),
        **_of("B", pair.target.client_keys("SCRAM")),
        "E->B.topics": prefix,
        "copy.epoch.ms": 1000,
        "spark.executor.memory": "480m",
    }
    with spark_cluster(tmp_path) as spark:
        without = mm2_properties("x:1", "y:1", aliases=("E", "B"), **{**keys, **spark.settings(python=python)})
        async with daemon(tmp_path, without, name="without") as refused:
            refused_with = await refused.wait()
        settings = without + f"secrets.key.file = {key}\n"
        with _watched((USER_PASSWORD,)) as shown:
            async with daemon(tmp_path, settings) as mirror:
                await await_arrived(pair.target.cluster.bootstrap_servers, f"E.{prefix}", _RECORDS)
                exit_code = await mirror.sigterm()

    assert refused_with == 2
    assert "passwords and keys would go to Spark's executors in clear text" in refused.log_text()
    assert exit_code == 0
    assert shown == []
    spare = {tmp_path / "mm2.properties", tmp_path / "without.properties"}
    assert _files_with((USER_PASSWORD,), tmp_path, spare=spare) == []
