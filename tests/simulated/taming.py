"""What of the product sees the machine that it runs on, its chance or its threads, and what it sees instead."""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from aiokafka.protocol.struct import Struct
from prometheus_client import Metric, ProcessCollector

from mm2py import daemon
from mm2py.herder import control, group_members, membership
from mm2py.model.herder.node import Node
from mm2py.pipeline.copy import epoch as copying
from mm2py.pipeline.transform import write
from mm2py.rest import server
from mm2py.telemetry import metrics
from mm2py.wire import addresses
from tests.simulated.codec import decoded, encoded
from tests.simulated.epochs import NoSpark, SimEpochs
from tests.simulated.http import open_listener
from tests.simulated.loop import HOST, Host
from tests.simulated.network import SocketModule


def _host() -> Host:
    host = HOST.get()
    assert host is not None
    return host


def _this_node(*, rest: str = "", started_ms: int = 0) -> Node:
    host = _host()
    return Node(host.machine, host.pid, f"machine of {host.machine}", "1", rest, started_ms)


def _worker_name() -> str:
    host = HOST.get()
    return host.name if host is not None else "nowhere"


class _AnyProcess(ProcessCollector):
    """What a process is measured by, all of it alike: an answer of another length takes another time on its way."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [sample._replace(value=1.0) for sample in metric.samples]
            yield metric


@contextlib.contextmanager
def tamed(seed: int) -> Iterator[None]:
    """Have nothing of the product see the machine that this runs on, its chance, or its threads."""
    draw = random.Random(f"product {seed}")

    class Seeded(random.Random):
        def __init__(self, x: Any = None) -> None:
            super().__init__(draw.random() if x is None else x)

    random.seed(f"global {seed}")
    with contextlib.ExitStack() as patches:
        for target, name, double in (
            (daemon, "SparkHost", NoSpark),
            (daemon, "EpochRunner", SimEpochs),
            (daemon, "this_node", _this_node),
            (control, "this_node", _this_node),
            (daemon, "os", SimpleNamespace(getpid=lambda: _host().pid)),
            (daemon, "_tune_garbage_collector", lambda: None),
            (membership, "is_alive", lambda _: True),
            (group_members, "is_alive", lambda _: True),
            (metrics, "ProcessCollector", _AnyProcess),
            (metrics, "platform", SimpleNamespace(python_version=lambda: "3")),
            (copying, "worker_name", _worker_name),
            (copying, "_cpu_s", lambda: 0.0),
            (copying, "_rss_bytes", lambda: 0),
            (write, "_cpu_s", lambda: 0.0),
            (addresses, "socket", SocketModule),
            # The same bytes, for a fraction of the time.
            (Struct, "encode", encoded),
            (Struct, "decode", classmethod(decoded)),
            (server, "open_listener", open_listener),
            (random, "Random", Seeded),
            (secrets, "token_hex", lambda n=8: f"{draw.getrandbits(n * 8):0{n * 2}x}"),
        ):
            patches.enter_context(mock.patch.object(target, name, double))
        yield
