"""Kerberos with a real KDC: tickets and sessions that last for seconds, a KDC that hangs, a keytab that is replaced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster, start_clusters
from mm2py.telemetry.events import AuthenticationFailed, ClusterRecovered
from tests.support.debian import ProgramMissingError
from tests.support.flows import flow_settings, running_flow
from tests.support.kerberos import Kdc, gssapi_folder, kerberos_cluster, running_kdc
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.secure_clusters import SecureCluster
from tests.support.topics import create_topic


pytestmark = pytest.mark.soak(only="a KDC and two brokers of its own, and time for tickets to end")
#: The library looks for a new ticket half a minute before the old one ends: at each login.
_TICKET_LIFE_S = 15
_SESSION_MS = 4_000
_RATE = 50


@attrs.frozen
class Realm:
    """A KDC, and two clusters that take its tickets."""

    kdc: Kdc
    source: KafkaCluster
    target: KafkaCluster

    def keys(self, topic: str, keytab: Path | None = None) -> dict[str, str]:
        """Return the settings of a flow; source and target know it by another principal."""
        ends = {
            "A": self.kdc.client_keys(self.source, "mm2", keytab),
            "B": self.kdc.client_keys(self.target, "mirror/host"),
        }
        logins = {f"{alias}.{key}": value for alias, keys in ends.items() for key, value in keys.items()}
        return {**logins, "A->B.topics": topic}


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    directory = tmp_path_factory.mktemp("realm")
    with pytest.MonkeyPatch.context() as patch:
        try:
            folder = gssapi_folder()
        except ProgramMissingError as error:
            pytest.skip(f"Python's gssapi is not installed and cannot be: {error}")
        if folder is not None:
            patch.syspath_prepend(folder)
        with running_kdc(directory, ticket_life_s=_TICKET_LIFE_S, principals=("mm2", "mirror/host", "other")) as kdc:
            patch.setenv("KRB5_CONFIG", str(kdc.conf))
            source, target = (
                kerberos_cluster(name, kdc, session_ms=_SESSION_MS, super_users=users)
                for name, users in (("realm-a", ""), ("realm-b", "User:mirror"))
            )
            start_clusters([source, target])
            try:
                yield Realm(kdc, source, target)
            finally:
                source.stop()
                target.stop()


async def _ready(realm: Realm, topic: str) -> None:
    """Create a topic that the short name of the mirror's principal may read."""
    await create_topic(realm.source.bootstrap_servers, topic)
    source = SecureCluster(realm.source, None, realm.kdc.directory)  # type: ignore[arg-type] # it only grants
    await source.grant("User:mm2", f"topic {topic} READ,DESCRIBE", "topic mm2- CREATE,DESCRIBE,READ,WRITE")


async def test_a_mirror_outlives_its_tickets_and_a_kdc_that_hangs(realm: Realm, prefix: str, tmp_path: Path) -> None:
    """
    Records go on over several tickets and sessions. If the KDC hangs until they are over, that is named.

    Once it answers, the flow goes on by itself, with nothing lost or repeated.
    """
    source, target = realm.source.bootstrap_servers, realm.target.bootstrap_servers
    await _ready(realm, prefix)
    settings = flow_settings("x:1", "y:1", **realm.keys(prefix))
    async with (
        running_flow(settings, tmp_path) as running,
        numbered_stream(source, prefix, count=_RATE, partitions=1, rate=_RATE, open_ended=True) as stream,
    ):
        await stream.reached(_RATE * _TICKET_LIFE_S * 3)
        await await_arrived(target, f"A.{prefix}", stream.sent)
        refused = running.events.of(AuthenticationFailed)
        realm.kdc.process.pause()
        try:
            told = await running.told(AuthenticationFailed)
        finally:
            realm.kdc.process.resume()
        await running.told(ClusterRecovered)
        sent = await stream.done()
        await await_arrived(target, f"A.{prefix}", sent)
    await assert_mirrored(source, prefix, target, f"A.{prefix}", sent)

    assert not refused
    assert {event.error for event in told} == {"no Kerberos ticket: the KDC does not answer"}
    assert {event.principal for event in told} <= {"User:mm2", "User:mirror"}


async def test_a_keytab_is_replaced(realm: Realm, prefix: str, tmp_path: Path) -> None:
    """Another principal's keytab is named once, with its principal; with the right one the flow copies."""
    await _ready(realm, prefix)
    await produce_numbers(realm.source.bootstrap_servers, prefix, count=100, partitions=1)
    keytab = tmp_path / "mm2.keytab"
    shutil.copy(realm.kdc.keytab("other"), keytab)
    async with running_flow(flow_settings("x:1", "y:1", **realm.keys(prefix, keytab)), tmp_path) as running:
        (told,) = await running.told(AuthenticationFailed)
        shutil.copy(realm.kdc.keytab("mm2"), keytab)
        await await_arrived(realm.target.bootstrap_servers, f"A.{prefix}", 100)

    assert (told.cluster, told.principal) == ("A", "User:mm2")
    assert told.error.startswith(f"no Kerberos ticket: keyTab {keytab} holds no key of mm2@")
