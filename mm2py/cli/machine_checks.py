"""What ``mm2py check`` looks at on this machine: Java, Spark, and the ports that a node listens on."""

from __future__ import annotations

import errno
import importlib.metadata
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from mm2py.config.settings import MirrorSettings
from mm2py.core.findings import Finding, Level
from mm2py.pipeline.spark.java import JavaMissingError, java, java_version
from mm2py.rest.server import open_listener


_SPARK_SCHEME: Final = "spark"
_SPARK_PORT: Final = 7077
_CONNECT_WITHIN_S: Final = 5.0


def machine_findings(settings: MirrorSettings) -> tuple[list[tuple[str, str]], list[Finding]]:
    """Return what there is, as names with a value each, and what is wrong with it."""
    facts: list[tuple[str, str]] = []
    findings: list[Finding] = []
    try:
        facts.append(("java", f"{java_version()}, {java()[1]}"))
    except JavaMissingError as error:
        findings.append(Finding(Level.ERROR, "java", str(error), error.hint))
    master = settings.spark["spark.master"]
    facts.append(("spark", f"{importlib.metadata.version('pyspark')}, spark.master = {master}"))
    findings += _spark_findings(master)
    taken = list(_taken_ports(settings))
    findings += taken
    listeners = ", ".join(str(listener) for listener in settings.rest.listeners) or "none"
    facts.append(("listeners", f"{listeners}{'' if taken else ' (free)'}"))
    return facts, findings


def _spark_findings(master: str) -> Iterator[Finding]:
    """Connect to each master of a Spark cluster: one of several leads, and the others are its stand-ins."""
    if not master.startswith(f"{_SPARK_SCHEME}://"):
        return
    failures = []
    for place in master.removeprefix(f"{_SPARK_SCHEME}://").split(","):
        address = urlsplit(f"//{place}")
        try:
            with socket.create_connection((address.hostname, address.port or _SPARK_PORT), _CONNECT_WITHIN_S):
                return
        except (OSError, ValueError) as error:
            failures.append(f"{place}: {getattr(error, 'strerror', None) or error}")
    hint = "check spark.master, and that Spark's master runs"
    yield Finding(Level.ERROR, "spark", f"no master of Spark's answers: {'; '.join(failures)}", hint)


def _taken_ports(settings: MirrorSettings) -> Iterator[Finding]:
    """Open what a node would listen on, and close it again."""
    all_listeners = settings.rest.listeners
    for listener in all_listeners:
        try:
            opened = open_listener(listener, all_listeners)
        except OSError as error:
            why = error.strerror or str(error)
            # The mirror does not depend on it.
            is_used = error.errno == errno.EADDRINUSE
            hint = "a mirror that runs already, or another process, has it" if is_used else "correct listeners"
            yield Finding(Level.WARNING, "listeners", f"{listener} cannot be opened: {why}", hint)
        else:
            for one in opened:
                one.close()
    if settings.plans_port > 0:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", settings.plans_port))
            except OSError as error:
                text = f"copy.plans.port {settings.plans_port} cannot be opened: {error.strerror or error}"
                yield Finding(Level.ERROR, "copy.plans.port", text, "stop what uses it, or name another port")
