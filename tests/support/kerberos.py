"""Real Kerberos: Apache Kerby's KDC, a cluster that takes its tickets, and Python's gssapi to ask for them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.jars import cache_directory, jars_of, java_command, locked
from mm2py.devkit.java import JvmOptions
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import LoggedProcess, start_process
from tests.support.brokers import AUTHORIZED, NEVER_KILLED
from tests.support.debian import ProgramMissingError, debian_program
from tests.support.eventually import scaled
from tests.support.java_programs import java_program


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
