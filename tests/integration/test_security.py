"""Logging in to real clusters, with and without rights, and the errors when they refuse."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest

from mm2py.client import MirrorClient
from mm2py.clock import SystemClock
from mm2py.config.worker import StorageSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.errors import ClusterUnreachableError
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.herder.connector_configs import KeyValue, config_record
from mm2py.storage.connector_store import ConnectorStore
from mm2py.telemetry.events import (
    AuthenticationFailed,
    ClusterRecovered,
    ConnectorWritesUnguarded,
    ControlWritesUnguarded,
    FlowStarted,
    FlowUnguarded,
    PartitionStopped,
    PositionsWritten,
    StepFailed,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import MetadataRequest
from mm2py.wire.security import oauth
from mm2py.wire.security.access import ClusterAccessError
from tests.support.certificates import PASSWORD, Authority
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.mirrored import arrived, await_arrived
from tests.support.mm2_file import COPY_ONLY
from tests.support.producing import produce_numbers
from tests.support.secure_clusters import (
    HOSTS,
    LISTENERS,
    USER,
    USER_PASSWORD,
    SecureCluster,
    plain_line,
    scram_line,
    secure_cluster,
    unsecured_line,
)
from tests.support.token_endpoint import token_endpoint
from tests.support.topics import create_topic


_SHORT_SESSION_MS = 3_000
_ASKED = re.compile(r"grant User:CN=mm2,O=mm2py (?P<operation>\w+) on topic (?P<topic>\S+) of cluster B")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """A cluster with a listener for each way to log in; sessions of the PLAIN one are short."""
    directory = tmp_path_factory.mktemp("secure")
    settings = {"listener.name.plain.connections.max.reauth.ms": str(_SHORT_SESSION_MS)}
    made = secure_cluster("secure", directory, authority=Authority(), properties=settings)
    other = Authority("Other Authority")
    (directory / "other.pem").write_text(other.pem)
    other.sign("stranger").pkcs12(directory / "stranger.p12")
    made.authority.sign("late", days=-1).pkcs12(directory / "expired.p12")
    with made.cluster:
        yield made


def endpoint(keys: Mapping[str, str], **more: int) -> ClusterEndpoint:
    left = dict(keys)
    servers, protocol = left.pop("bootstrap.servers"), left.pop("security.protocol")
    return ClusterEndpoint(
        "A", tuple(servers.split(",")), security=Security(protocol, tuple(sorted(left.items()))), **more
    )


async def refusal(keys: Mapping[str, str]) -> ClusterAccessError:
    with pytest.raises(ClusterAccessError) as caught:
        async with Cluster(endpoint(keys), SystemClock()):
            pass
    return caught.value


def flow_keys(alias: str, keys: Mapping[str, str]) -> dict[str, str]:
    return {f"{alias}.{name}": value for name, value in keys.items()}


@pytest.mark.parametrize("listener", LISTENERS)
async def test_every_way_in(secure: SecureCluster, listener: str) -> None:
    """One-way and mutual TLS, SCRAM over TLS, PLAIN and a token without it: each is let in and answered."""
    async with Cluster(endpoint(secure.client_keys(listener)), SystemClock()) as cluster:
        await cluster.refresh_metadata(None)

        assert len(cluster.brokers) == 1


@pytest.mark.parametrize("listener", LISTENERS)
async def test_the_library_comes_in_by_java_s_keys(secure: SecureCluster, listener: str) -> None:
    """The client library takes the same keys from a mapping, as a program written for Java's client has them."""
    async with MirrorClient(secure.client_keys(listener)) as client:
        assert client.config.security.protocol == LISTENERS[listener]
        assert await client.upstream_clusters() == set()


async def test_client_certificates_in_every_form(secure: SecureCluster, tmp_path: Path) -> None:
    """Mutual TLS with key and chain from a PEM file, from the settings, and with a locked key."""
    client = secure.authority.sign("mm2")
    forms = (
        {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(client.write_pem(tmp_path / "own.pem"))},
        {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": "",
            "ssl_keystore_key": client.locked_key_pem(),
            "ssl_key_password": PASSWORD,
            "ssl_keystore_certificate_chain": client.pem,
            "ssl_truststore_type": "PKCS12",
            "ssl_truststore_location": str(secure.directory / "trust.p12"),
            "ssl_truststore_password": PASSWORD,
        },
    )
    for form in forms:
        async with Cluster(endpoint(secure.client_keys("MUTUAL", **form)), SystemClock()) as cluster:
            assert cluster.brokers


async def test_tokens_of_an_endpoint(secure: SecureCluster) -> None:
    """A token is fetched by the client credentials grant, once for several connections, and again when it is old."""
    with token_endpoint() as tokens:
        keys = secure.client_keys(
            "OAUTH",
            sasl_jaas_config="x.OAuthBearerLoginModule required scope=kafka;",
            sasl_oauthbearer_token_endpoint_url=tokens.url,
            sasl_oauthbearer_client_credentials_client_id=tokens.client,
            sasl_oauthbearer_client_credentials_client_secret=tokens.secret,
        )
        async with Cluster(endpoint(keys), SystemClock()) as cluster:
            (node,) = cluster.brokers
            for purpose in ("fetch", "produce"):
                await cluster.connection(node, purpose)
            before = len(tokens.scopes)
            _let_expire(endpoint(keys))
            await cluster.connection(node, "later")
            after = len(tokens.scopes)
        tokens.secret = "changed"
        _let_expire(endpoint(keys))
        error = await refusal(keys)

    assert (before, after) == (1, 2)
    assert set(tokens.scopes) == {"kafka"}
    assert "/token answered 401 Unauthorized (invalid_client: no such client, or a wrong secret)" in error.cause
    assert error.principal == f"User:{tokens.client}"


def _let_expire(end: ClusterEndpoint) -> None:
    oauth._tokens[end.security] = attrs.evolve(oauth._tokens[end.security], use_until=0.0, last_s=0.0)


_WRONG, _NOBODY = {"sasl_jaas_config": plain_line(password="wr0ng")}, {"sasl_jaas_config": scram_line(user="nobody")}
_WRONG_SCRAM = {"sasl_jaas_config": scram_line(password="wr0ng")}
_OLD_TOKEN = {"sasl_jaas_config": unsecured_line(USER)[:-1] + ' unsecuredLoginLifetimeSeconds="-100";'}
_NO_SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_jaas_config": plain_line()}


@pytest.mark.parametrize(
    ("listener", "keys", "cause", "hint"),
    [
        ("PLAIN", _WRONG, "user name or password", "correct username and password in sasl.jaas.config"),
        ("SCRAM", _WRONG_SCRAM, "user name or password", "or create the user on the cluster"),
        ("SCRAM", _NOBODY, "user name or password", "or create the user on the cluster"),
        ("OAUTH", _OLD_TOKEN, "invalid_token", "what the broker expects of a token"),
        ("SCRAM", {"sasl_mechanism": "PLAIN"}, "it takes SCRAM-SHA-512", "set sasl.mechanism to one"),
        ("TLS", {"ssl_truststore_location": "{}/other.pem"}, "not trusted", "add the authority that signed"),
        ("MUTUAL", {"ssl_keystore_location": ""}, "client's certificate", "set ssl.keystore.*"),
        ("MUTUAL", {"ssl_keystore_location": "{}/stranger.p12"}, "client's certificate", "set ssl.keystore.*"),
        ("MUTUAL", {"ssl_keystore_location": "{}/expired.p12"}, "client's certificate", "may have expired"),
        ("MUTUAL", {"ssl_keystore_password": "wr0ng"}, "client.p12", "fix the file"),
        ("MUTUAL", {"ssl_keystore_location": "{}/none.p12"}, "none.p12", "fix the file"),
        ("TLS", {"security_protocol": "PLAINTEXT"}, "speaks TLS", "set security.protocol to SSL"),
        ("SCRAM", {"security_protocol": "SASL_PLAINTEXT"}, "speaks TLS", "set security.protocol to SSL"),
        ("PLAIN", {"security_protocol": "SSL"}, "not speak TLS", "PLAINTEXT or SASL_PLAINTEXT"),
        ("PLAIN", {"security_protocol": "PLAINTEXT"}, "at the first request", "set security.protocol to SASL_PL"),
        ("TLS", _NO_SASL, "no SASL", "set security.protocol to PLAINTEXT or SSL"),
    ],
)
async def test_being_kept_out_is_explained(
    secure: SecureCluster, listener: str, keys: dict[str, str], cause: str, hint: str
) -> None:
    """Each mistake gives one message with the cause and a hint, and shows no secret."""
    given = {name: value.replace("{}", str(secure.directory)) for name, value in keys.items()}
    error = await refusal(secure.client_keys(listener, **given))

    assert cause in error.cause
    assert hint in error.hint
    assert str(error).startswith(f"cluster A at {error.servers}, ")
    assert not {secret for secret in ("wr0ng", USER_PASSWORD, PASSWORD) if secret in str(error) + error.hint}


async def test_broker_s_certificates(secure: SecureCluster) -> None:
    """An expired certificate and one for another host are different errors; the host check can be switched off."""
    keys = secure.client_keys("TLS")
    await secure.show_certificate("TLS", secure.authority.sign("broker", *HOSTS, days=-1))
    expired = await _refusal_with(keys, "expired")
    await secure.show_certificate("TLS", secure.authority.sign("broker", "elsewhere.example.com"))
    elsewhere = await _refusal_with(keys, "another host")
    unchecked = keys | {"ssl.endpoint.identification.algorithm": ""}
    await eventually(lambda: _enters(unchecked), within_s=20, what="the host of the certificate is not checked")
    await secure.show_certificate("TLS", secure.authority.sign("broker", *HOSTS))
    await eventually(lambda: _enters(keys), within_s=20, what="the mended certificate is shown")

    assert "advertised.listeners" not in expired.hint
    assert "advertised.listeners" in elsewhere.hint


async def _enters(keys: Mapping[str, str]) -> bool | None:
    """Whether each of the broker's network threads lets us in: they take a new certificate one after the other."""
    try:
        for _ in range(4):  # two threads take connections in turn
            async with Cluster(endpoint(keys), SystemClock()):
                pass
    except ClusterAccessError:
        return None
    return True


async def _refusal_with(keys: Mapping[str, str], word: str) -> ClusterAccessError:
    """Wait until the broker has taken its new certificate and is refused for that."""

    async def refused() -> ClusterAccessError | None:
        try:
            async with Cluster(endpoint(keys), SystemClock()):
                return None
        except ClusterAccessError as error:
            return error if word in error.cause else None

    return await eventually(refused, within_s=20, what=f"the broker is refused: {word}")


async def test_no_account_is_locked(secure: SecureCluster) -> None:
    """However often a refused cluster is used, all its users together send a login only once in a while."""
    end = endpoint(secure.client_keys("PLAIN", sasl_jaas_config=plain_line(user="locked", password="wr0ng")))
    clock = SystemClock()
    tried = _failed_logins(secure)
    begun = time.monotonic()
    while time.monotonic() - begun < 1.0:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(_ask_and_fail(Cluster(end, clock)))

    assert _failed_logins(secure) - tried <= 10  # the first five clusters, asked at the same moment


async def _ask_and_fail(cluster: Cluster) -> None:
    with pytest.raises(ClusterUnreachableError):
        await cluster.connect()
    await cluster.close()


def _failed_logins(secure: SecureCluster) -> int:
    return secure.cluster.log_tail(lines=5_000).count("Failed authentication")


async def test_sessions_are_renewed(secure: SecureCluster) -> None:
    """Connections outlive the broker's sessions: logins are renewed between requests that go on all the time."""
    end = endpoint(secure.client_keys("PLAIN"))
    async with Cluster(end, SystemClock()) as cluster:
        (node,) = cluster.brokers
        connection = await cluster.connection(node, "fetch")
        first = connection._renew_at
        until = time.monotonic() + 2.2 * _SHORT_SESSION_MS / 1000
        asked = 0
        while time.monotonic() < until:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(cluster.refresh_metadata(None))
                tasks.create_task(cluster.send_to(node, MetadataRequest(()), "fetch"))
            asked += 1
        same = await cluster.connection(node, "fetch")
        renewed = connection._renew_at

    assert same is connection
    assert renewed > first + _SHORT_SESSION_MS / 1000
    assert asked > 10


async def test_an_idle_session_is_renewed_late(secure: SecureCluster) -> None:
    """A connection that was idle until its session ended is used again without a lost request."""
    async with Cluster(endpoint(secure.client_keys("PLAIN")), SystemClock()) as cluster:
        (node,) = cluster.brokers
        connection = await cluster.connection(node)
        await asyncio.sleep(_SHORT_SESSION_MS / 1000 + 0.5)
        await cluster.send_to(node, MetadataRequest(()))

        assert await cluster.connection(node) is connection


async def test_a_flow_recovers_when_a_password_is_mended(
    secure: SecureCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A refused login is reported once, with cluster and principal; once the password is right the flow copies."""
    target = backup.bootstrap_servers
    user = f"user-{prefix[-6:]}"
    await create_topic(secure.cluster.bootstrap_servers, prefix)
    await produce_numbers(secure.cluster.bootstrap_servers, prefix, count=500, partitions=1)
    await secure.set_password(user, "another-pw")
    keys = flow_keys("A", secure.client_keys("SCRAM", sasl_jaas_config=scram_line(user, "right-pw")))
    settings = flow_settings("x:1", target, **{**keys, "A->B.topics": prefix})
    async with running_flow(settings, tmp_path) as running:
        await eventually(lambda: running.events.of(AuthenticationFailed), within_s=30, what="the refusal is told")
        await secure.grant(f"User:{user}", f"topic {prefix} READ,DESCRIBE")
        await secure.set_password(user, "right-pw")
        await await_arrived(target, f"A.{prefix}", 500)
        told = running.events.of(AuthenticationFailed)
        recovered = running.events.of(ClusterRecovered)

    assert [(event.cluster, event.principal) for event in told] == [("A", f"User:{user}")]
    assert str(told[0].flow) == "A->B"
    assert told[0].error.startswith("the broker refused the user name or password")
    assert "right-pw" not in f"{told}"
    assert len(recovered) == 1


async def test_a_flow_recovers_when_a_permission_is_granted(
    secure: SecureCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A missing permission at source or target is named with principal, operation and topic; then it is granted."""
    target = backup.bootstrap_servers
    await create_topic(secure.cluster.bootstrap_servers, prefix)
    await produce_numbers(secure.cluster.bootstrap_servers, prefix, count=500, partitions=1)
    await secure.grant("User:other", f"topic {prefix} DESCRIBE")
    keys = flow_keys("A", secure.client_keys("PLAIN", sasl_jaas_config=plain_line("other", "other-pw")))
    settings = flow_settings("x:1", target, **{**keys, "A->B.topics": prefix})
    async with running_flow(settings, tmp_path) as running:
        await eventually(lambda: running.events.of(PartitionStopped), within_s=30, what="the refusal is told")
        before = await arrived(target, f"A.{prefix}")
        await secure.grant("User:other", f"topic {prefix} READ")
        await await_arrived(target, f"A.{prefix}", 500)
        stopped = running.events.of(PartitionStopped)

    assert before == 0
    assert all("TOPIC_AUTHORIZATION_FAILED" in it.message for it in stopped), stopped
    assert {it.hint for it in stopped} == {f"grant User:other READ on topic {prefix} of cluster A"}, stopped


async def test_missing_permissions_at_the_target(
    primary: KafkaCluster, secure: SecureCluster, prefix: str, tmp_path: Path
) -> None:
    """Granting exactly the right that each hint names ends in a flow that copies."""
    source = primary.bootstrap_servers
    await create_topic(source, prefix)
    await produce_numbers(source, prefix, count=500, partitions=1)
    positions, remote = f"positions-{prefix[-6:]}", f"A.{prefix}"
    keys = {**flow_keys("B", secure.client_keys("MUTUAL")), "A->B.topics": prefix, "offset.storage.topic": positions}
    granted: list[tuple[str, str]] = []

    async def obey(running: RunningFlow) -> bool:
        told = [event.hint for event in (*running.events.of(StepFailed), *running.events.of(PartitionStopped))]
        for hint in told:
            asked = _ASKED.match(hint)
            if asked is not None and (asked["operation"], asked["topic"]) not in granted:
                granted.append((asked["operation"], asked["topic"]))
                await secure.grant("User:CN=mm2,O=mm2py", f"topic {asked['topic']} {asked['operation']}")
        found = await arrived(secure.cluster.bootstrap_servers, remote)
        assert found == 500, f"{found} records; granted is {granted}, told was {running.events.of(StepFailed)}"
        return True

    async with running_flow(flow_settings(source, "y:1", **{**COPY_ONLY, **keys}), tmp_path) as running:
        await eventually(lambda: obey(running), within_s=120, what="all is granted and copied")

    assert set(granted) == {
        *((operation, positions) for operation in ("DESCRIBE", "CREATE", "WRITE", "READ")),
        *((operation, remote) for operation in ("CREATE", "DESCRIBE", "WRITE")),
    }


async def test_without_the_right_to_its_group_a_flow_runs_unguarded(
    primary: KafkaCluster, secure: SecureCluster, prefix: str, tmp_path: Path
) -> None:
    """A second node would go unnoticed: that is reported once, with what to grant, and the flow goes on."""
    alias = prefix[-6:]
    keys = {f"{alias}->B.topics": prefix, **flow_keys("B", secure.client_keys("MUTUAL"))}
    settings = flow_settings(primary.bootstrap_servers, "y:1", alias=alias, **{**COPY_ONLY, **keys})
    async with running_flow(settings, tmp_path) as running:
        # It goes on as far as the next right that it lacks, which is asked for once it is on its way.
        failed = await eventually(lambda: running.events.of(StepFailed), within_s=30, what="the next refusal")
        (unguarded,) = running.events.of(FlowUnguarded)

    assert "GROUP_AUTHORIZATION_FAILED" in unguarded.error
    assert unguarded.hint.startswith(f"grant User:CN=mm2,O=mm2py READ on group {alias}-mm2 of cluster B")
    assert f"mm2-offsets.{alias}.internal" in failed[0].error


async def test_without_the_right_to_transactional_ids_a_flow_writes_unguarded(
    primary: KafkaCluster, secure: SecureCluster, prefix: str, tmp_path: Path
) -> None:
    """
    That is reported once, with the one permission that is missing, and the flow goes on. With it positions are guarded.
    If it is withdrawn from a flow that runs, that is reported once, and positions wait for it; records do not.
    """
    source, target, alias = primary.bootstrap_servers, secure.cluster.bootstrap_servers, prefix[-6:]
    await create_topic(source, prefix)
    await produce_numbers(source, prefix, count=500, partitions=1)
    user, rights = f"user-{alias}", "CREATE,DESCRIBE,READ,WRITE"
    await secure.set_password(user, "right-pw")
    await secure.grant(f"User:{user}", f"topic {alias}. {rights}", f"topic mm2- {rights}", f"group {alias}-mm2 READ")
    keys = {
        f"{alias}->B.topics": prefix,
        "B.offset.flush.interval.ms": "1000",
        **flow_keys("B", secure.client_keys("SCRAM", sasl_jaas_config=scram_line(user, "right-pw"))),
    }
    settings = flow_settings(source, "y:1", alias=alias, **{**COPY_ONLY, **keys})
    async with running_flow(settings, tmp_path) as running:
        await eventually(lambda: running.events.of(PositionsWritten), within_s=30, what="a position is written")
        (unguarded,) = running.events.of(ControlWritesUnguarded)
        await await_arrived(target, f"{alias}.{prefix}", 500)
        await running.drain()  # so that the next life has no position to write at once
        refused = running.events.of(StepFailed)
    asked = re.match(
        rf"grant User:{user} WRITE on transactional ids that begin with (\S+) of cluster B", unguarded.hint
    )
    assert asked is not None, unguarded
    missing = f"transactional_id {asked[1]} WRITE"
    await secure.grant(f"User:{user}", missing)
    async with running_flow(settings, tmp_path) as running:
        await eventually(lambda: running.events.of(FlowStarted), within_s=30, what="its id is opened")
        await secure.revoke(f"User:{user}", missing)
        await produce_numbers(source, prefix, count=500, partitions=1)
        await eventually(lambda: running.events.of(StepFailed), within_s=30, what="the refusal is told")
        await await_arrived(target, f"{alias}.{prefix}", 1000)
        before = running.events.of(PositionsWritten)
        await secure.grant(f"User:{user}", missing)
        await eventually(lambda: running.events.of(PositionsWritten), within_s=30, what="a position is written")
        withdrawn, again = running.events.of(StepFailed), running.events.of(ControlWritesUnguarded)

    assert (asked[1], unguarded.transactional_id) == (f"{alias}-mm2-MirrorSourceConnector-", f"{asked[1]}0")
    assert not (*refused, *again, *before)
    (told,) = withdrawn
    assert told.step == "write positions"
    assert told.hint.startswith(f"grant User:{user} WRITE on transactional id {asked[1]}0 of cluster B")


async def test_without_the_right_to_its_leader_s_id_a_worker_writes_unguarded(
    secure: SecureCluster, prefix: str
) -> None:
    """That is reported once, with what to grant; connectors are stored nevertheless."""
    user, clock = "User:CN=mm2,O=mm2py", SystemClock()
    await secure.grant(user, f"topic {prefix} CREATE,DESCRIBE,READ,WRITE")
    events, topic, leader = EventLog(clock), StorageSettings(prefix, 1), f"connect-cluster-{prefix}"
    store = ConnectorStore(
        endpoint(secure.client_keys("MUTUAL")),
        topic,
        leader,
        clock=clock,
        events=events,
        jitter=random.random,
        on_change=lambda _: None,
        on_request=lambda _: None,
    )

    async def decide() -> Sequence[KeyValue]:
        return [config_record(f"m{len(store.connectors)}", {"topics": "orders"})]

    async with asyncio.TaskGroup() as tasks:
        follow = tasks.create_task(store.follow(), name="follow")
        await eventually(lambda: store.is_read, within_s=30, what="the topic was read")
        for _ in range(2):
            await store.change(decide)
        follow.cancel()
    (unguarded,) = events.of(ConnectorWritesUnguarded)

    assert set(store.connectors) == {"m0", "m1"}
    assert unguarded.hint.startswith(f"grant {user} WRITE on transactional id {leader} of cluster A")
