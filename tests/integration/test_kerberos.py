"""Kerberos with a real KDC: tickets and sessions that last for seconds, a KDC that hangs, a keytab that is replaced."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster, start_clusters
from mm2py.devkit.jars import cache_directory, jars_of, java_command, locked
from mm2py.devkit.java import JvmOptions
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import LoggedProcess, start_process
from mm2py.telemetry.events import AuthenticationFailed, ClusterRecovered
from tests.support.brokers import AUTHORIZED, NEVER_KILLED
from tests.support.debian import ProgramMissingError, debian_program
from tests.support.eventually import scaled
from tests.support.flows import flow_settings, running_flow
from tests.support.java_programs import java_program
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.secure_clusters import SecureCluster
from tests.support.topics import create_topic


pytestmark = pytest.mark.soak(only="a KDC and two brokers of its own, and time for tickets to end")
#: The library looks for a new ticket half a minute before the old one ends: at each login.
_TICKET_LIFE_S = 15
_SESSION_MS = 4_000
_RATE = 50


REALM = "MM2PY.TEST"
LISTENER = "KERBEROS"
BROKER = f"kafka/{HOST}"
_KERBY = "2.1.0"
_START_LIMIT_S = 60.0
_INSTALL_LIMIT_S = 600.0
_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


def gssapi_folder() -> Path | None:
    """
    Return a folder that has Python's gssapi, None if it is installed anyway.

    It is compiled when a test first asks for it. Raise ProgramMissingError, which says why, if that fails.
    """
    if importlib.util.find_spec("gssapi") is not None:
        return None
    name = f"gssapi-{sys.implementation.cache_tag}"
    folder = cache_directory() / name
    with locked(cache_directory() / f"{name}.lock"):
        if not (folder / "gssapi").is_dir():
            debian_program("libkrb5-dev", "krb5-config")
            line = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "gssapi>=1.8"]
            done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S)
            if done.returncode:
                message = f"pip could not install gssapi, its own words: {done.stderr[-2_000:]}"
                raise ProgramMissingError(message)
    return folder


@attrs.frozen
class Kdc:
    """A running KDC, and what it takes to ask it."""

    directory: Path
    process: LoggedProcess

    @property
    def conf(self) -> Path:
        """The krb5.conf of its realm."""
        return self.directory / "krb5.conf"

    def keytab(self, principal: str) -> Path:
        return self.directory / f"{principal.replace('/', '-')}.keytab"

    def line(self, principal: str, keytab: Path | None = None) -> str:
        """Return the JAAS line of a principal."""
        path = keytab or self.keytab(principal)
        return f'{_MODULE} useKeyTab=true storeKey=true keyTab="{path}" principal="{principal}@{REALM}";'

    def client_keys(self, cluster: KafkaCluster, principal: str, keytab: Path | None = None) -> dict[str, str]:
        """Return the client settings for a cluster of `kerberos_cluster`."""
        return {
            "bootstrap.servers": cluster.servers(LISTENER),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": self.line(principal, keytab),
        }


@contextmanager
def running_kdc(directory: Path, *, ticket_life_s: int, principals: Sequence[str]) -> Iterator[Kdc]:
    """Run a KDC that knows the brokers and *principals*, each of which has a keytab."""
    jars = jars_of(f"kerby-{_KERBY}", [("org.apache.kerby", "kerb-simplekdc", _KERBY)])
    program = java_program("Kdc", jars=jars)
    (port,) = free_ports(1)
    (directory / "krb5.conf").write_text(
        f"[libdefaults]\ndefault_realm = {REALM}\nudp_preference_limit = 1\ndns_lookup_kdc = false\n"
        "dns_lookup_realm = false\ndns_canonicalize_hostname = false\nrdns = false\n"
        f"[realms]\n{REALM} = {{\nkdc = {HOST}:{port}\n}}\n"
    )
    # In its own folder it writes a krb5.conf, too.
    own = directory / "kdc"
    own.mkdir()
    words = [str(own), REALM, str(port), str(ticket_life_s)]
    for principal in (BROKER, *principals):
        words += [principal, str(directory / f"{principal.replace('/', '-')}.keytab")]
    command = [java_command(), "-Xmx96m", "-XX:+UseSerialGC", "-cp", program.classpath, program.main_class, *words]
    process = start_process("KDC", command, log_file=directory / "kdc.log", cwd=directory)
    try:
        _await_ready(process)
        yield Kdc(directory, process)
    finally:
        process.kill()


def _await_ready(process: LoggedProcess) -> None:
    deadline = time.monotonic() + scaled(_START_LIMIT_S)
    while "ready" not in process.log_tail(5):
        if not process.is_running or time.monotonic() > deadline:
            message = f"the KDC did not start:\n{process.log_tail(40)}"
            raise RuntimeError(message)
        time.sleep(0.1)


def kerberos_cluster(name: str, kdc: Kdc, *, session_ms: int, super_users: str = "") -> KafkaCluster:
    """Make a cluster that is not started yet: beside PLAINTEXT, the super user's, it has a listener for tickets."""
    prefix = f"listener.name.{LISTENER.lower()}."
    settings = {
        **NEVER_KILLED,
        **AUTHORIZED,
        "super.users": f"User:ANONYMOUS;{super_users}",
        "sasl.kerberos.service.name": "kafka",
        f"{prefix}sasl.enabled.mechanisms": "GSSAPI",
        f"{prefix}gssapi.sasl.jaas.config": kdc.line(BROKER),
        f"{prefix}connections.max.reauth.ms": str(session_ms),
    }
    usual = JvmOptions()
    jvm = attrs.evolve(usual, flags=(*usual.flags, f"-Djava.security.krb5.conf={kdc.conf}"))
    return KafkaCluster(name, properties=settings, listeners={LISTENER: "SASL_PLAINTEXT"}, jvm=jvm)


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
