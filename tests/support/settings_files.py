"""Properties files for the comparison with Java: every prefix, every clash of two, and many drawn at random."""

from __future__ import annotations

import itertools
import random

from tests.support.config_files import BASE


#: Every prefix that may stand before a setting of a client: those that count and those that do not.
_PREFIXES = (
    "", "consumer.", "producer.", "admin.", "A.", "B.",
    "A.consumer.", "A.producer.", "A.admin.", "B.consumer.", "B.producer.", "B.admin.",
    "A->B.", "A->B.consumer.", "A->B.producer.", "A->B.admin.", "A->B.producer.override.",
    "A->B.consumer.override.", "A->B.source.cluster.", "A->B.target.cluster.", "A->B.source.consumer.",
    "A->B.source.producer.", "A->B.source.admin.", "A->B.target.consumer.", "A->B.target.producer.",
    "A->B.target.admin.",
    "B->A.consumer.", "B->A.producer.override.", "source.cluster.", "target.cluster.", "source.consumer.",
)  # fmt: skip
#: Client keys, which are inherited, and others, which are not; values by kind, so that Java takes them all.
_CLIENT_SETTINGS = {
    "bootstrap.servers": ("c:1", "SASL_SSL://d:2", "e:3", "f:4"),
    "security.protocol": ("SSL", "ssl", "SASL_SSL", "PLAINTEXT"),
    "ssl.keystore.type": ("PEM", "JKS", "PKCS12", "x"),
    "sasl.mechanism": ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "y"),
    "request.timeout.ms": ("1", "2", "3", "4"),
    "metadata.max.age.ms": ("5", "6", "7", "8"),
    "max.request.size": ("9", "10", "11", "12"),
    "fetch.min.bytes": ("13", "14", "15", "16"),
    "client.id": ("one", "two", "three", "four"),
}
_FLOW_SETTINGS = {
    "tasks.max": ("1", "2", "33"),
    "topics": ("a, b", "x.*", ""),
    "topics.exclude": ("c, d, c", "mm2.*", ""),
    "groups": ("g1,g2", ".*", ""),
    "replication.factor": ("-1", "3", "4"),
    "replication.policy.separator": ("_", "-", ""),
    "refresh.topics.interval.seconds": ("5", "0", "-7"),
    "sync.topic.acls.enabled": ("false", "TRUE", " true"),
    "emit.heartbeats.enabled": ("false", "true", "False"),
    "emit.checkpoints.interval.seconds": ("0", "9", "-10"),
    "offset-syncs.topic.location": ("source", "target", "source"),
    "offset.lag.max": ("0", "1", "2"),
    "enabled": ("true", "false", "True"),
}
_WORKER_SETTINGS = {
    "offset.storage.topic": ("one", "two"),
    "offset.storage.replication.factor": ("1", "2"),
    "offset.flush.interval.ms": ("7", "8"),
    "task.shutdown.graceful.timeout.ms": ("9", "10"),
    "worker.sync.timeout.ms": ("11", "12"),
    "group.id": ("g", "h"),
    "client.id": ("c", "d"),
    "exactly.once.source.support": ("enabled", "disabled"),
}
_LEVELS = ("", "A.", "B.", "A->B.", "B->A.")


#: Where we differ on purpose (docs/compatibility.md says why); the files are compared apart.
BLANK_BEHIND_TRUE = """\
clusters = A, B, C
bootstrap.servers = x:1
emit.heartbeats.enabled = false
A->B.enabled = true\\u0020
B->C.enabled = true
"""


def settings_files() -> dict[str, str]:
    """Return the files by name; the same ones each time."""
    files = {"plain": BASE, "only-clusters": "clusters = A, B\n", **_pairs(), **_clashes(), **_levels(), **_drawn()}
    return {f"{name}.properties": text for name, text in files.items()}


def _pairs() -> dict[str, str]:
    three = "clusters = A, B, C\nbootstrap.servers = x:1\n"
    return {
        "pairs-default": three,
        "pairs-enabled": three + "A->B.enabled = true\n",
        "pairs-heartbeats-off": three + "emit.heartbeats.enabled = false\nA->B.enabled = TRUE\nB->A.enabled = false\n",
        "pairs-one-heartbeat": three + "emit.heartbeats.enabled = false\nC->A.emit.heartbeats.enabled = true\n",
        "pairs-one-off": three + "A->B.emit.heartbeats.enabled = false\nA->C.emit.heartbeats.enabled = FALSE\n",
        "pairs-top-level": three + "enabled = true\nemit.heartbeats.enabled = false\nB->C.enabled = true\n",
        "pairs-dotted": "clusters = us.west, us\nus.west.bootstrap.servers = w:1\nus.bootstrap.servers = u:1\n",
    }


def _clashes() -> dict[str, str]:
    """Set one key of each kind behind every two prefixes at once, so that each meets each other one."""
    files: dict[str, str] = {}
    for setting in ("security.protocol", "request.timeout.ms"):
        values = _CLIENT_SETTINGS[setting]
        for number, (one, other) in enumerate(itertools.combinations(_PREFIXES, 2)):
            lines = f"{one}{setting} = {values[0]}\n{other}{setting} = {values[2]}\n"
            files[f"clash-{setting}-{number:03}"] = BASE + lines
    return files


def _levels() -> dict[str, str]:
    files: dict[str, str] = {}
    for setting, values in (_FLOW_SETTINGS | _WORKER_SETTINGS).items():
        for one, other in itertools.combinations(_LEVELS, 2):
            lines = f"{one}{setting} = {values[0]}\n{other}{setting} = {values[1]}\n"
            files[f"level-{setting}-{one or 'top'}-{other or 'top'}".replace(">", "")] = BASE + lines
    return files


def _drawn() -> dict[str, str]:
    files: dict[str, str] = {}
    for number in range(120):
        chance = random.Random(number)
        lines = [_line(chance, chance.choice(_PREFIXES), _CLIENT_SETTINGS) for _ in range(chance.randrange(1, 30))]
        lines += [
            _line(chance, chance.choice(_LEVELS), _FLOW_SETTINGS | _WORKER_SETTINGS)
            for _ in range(chance.randrange(12))
        ]
        chance.shuffle(lines)
        files[f"drawn-{number:03}"] = BASE + "".join(lines)
    return files


def _line(chance: random.Random, prefix: str, settings: dict[str, tuple[str, ...]]) -> str:
    setting = chance.choice(list(settings))
    return f"{prefix}{setting} = {chance.choice(settings[setting])}\n"
