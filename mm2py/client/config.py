"""
What a `MirrorClient` needs to know: where the cluster is, and by which replication policy its topics are named.

The keys of a mapping are those of Java's MirrorClientConfig, so that a map written for Java does here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

import attrs

from mm2py.config.keys.row import trimmed
from mm2py.config.layers import Value
from mm2py.config.problem import ConfigError, Problem
from mm2py.config.resolve import parse_servers
from mm2py.config.security import read_security
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.policy.plugins import PluginError, load_policy
from mm2py.policy.replication import DEFAULT_SEPARATOR, DefaultReplicationPolicy, ReplicationPolicy


_WHERE = "MirrorClientConfig"
_CLIENT_KEYS = ("bootstrap.servers", "security.protocol", "request.timeout.ms", "client.id")
_SECURITY_STEMS = ("ssl.", "sasl.")
#: Java has a consumer and an admin client, each with lines of its own; here one connection does both.
_ROLES = ("consumer.", "admin.")
_POLICY_KEYS = (
    "replication.policy.class",
    "replication.policy.separator",
    "replication.policy.internal.topic.separator.enabled",
    "source.cluster.alias",
    "remote.topic.prefix",
    "remote.topic.suffix",
)
_DEFAULT_POLICY_CLASS = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"


def _servers(value: str | Sequence[str]) -> tuple[str, ...]:
    return parse_servers(value if isinstance(value, str) else ",".join(value))


@attrs.frozen
class MirrorClientConfig:
    """
    How a `MirrorClient` reaches one cluster and reads its topics' names.

    `bootstrap_servers` may be given as one text, ``host1:9092,host2:9092``, or as several; ValueError names an address
    that cannot be read. `name` stands for the cluster in error messages; the first server does where it is empty.
    `unused` are the keys of a mapping that mean nothing to this client.
    """

    bootstrap_servers: tuple[str, ...] = attrs.field(converter=_servers)
    policy: ReplicationPolicy = attrs.field(factory=DefaultReplicationPolicy, kw_only=True)
    security: Security = attrs.field(factory=Security, kw_only=True)
    name: str = attrs.field(default="", kw_only=True)
    client_id: str = attrs.field(default="mm2py-client", kw_only=True)
    request_timeout_ms: int = attrs.field(default=30_000, kw_only=True, validator=attrs.validators.ge(1))
    unused: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object], *, name: str = "") -> Self:
        """
        Read the keys of Java's MirrorClientConfig, and ``source.cluster.alias`` for names that stay as they are.

        Raise `ConfigError` with every problem. Where ``consumer.`` or ``admin.`` stands before a client's key, that
        line wins, the consumer's first.
        """
        texts = {key: _text(value) for key, value in values.items() if value is not None}
        client = dict(_client_lines(texts))
        problems: list[Problem] = []
        servers = _read_servers(client.get("bootstrap.servers"), problems)
        security = _read_security(client, problems)
        timeout_ms = _read_timeout(client.get("request.timeout.ms", "30000"), problems)
        policy = _read_policy(texts, problems)
        if problems:
            raise ConfigError(tuple(problems))
        return cls(
            servers,
            policy=policy,
            security=security,
            name=name,
            client_id=trimmed(client.get("client.id", "mm2py-client")),
            request_timeout_ms=timeout_ms,
            unused=tuple(sorted(key for key in texts if not _is_known(key))),
        )

    @property
    def endpoint(self) -> ClusterEndpoint:
        """How the connections are made."""
        return ClusterEndpoint(
            self.name or self.bootstrap_servers[0],
            self.bootstrap_servers,
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            security=self.security,
        )


def _text(value: object) -> str:
    """Spell a value as a properties file would: Java's maps may hold booleans, lists and classes."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def _client_lines(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return the keys of the connection with the line that counts; what comes later wins."""
    for role in ("", *reversed(_ROLES)):
        for key, text in texts.items():
            if key.startswith(role) and _is_client_key(key.removeprefix(role)):
                yield key.removeprefix(role), text


def _is_client_key(key: str) -> bool:
    return key in _CLIENT_KEYS or key.startswith(_SECURITY_STEMS)


def _is_known(key: str) -> bool:
    bare = next((key.removeprefix(role) for role in _ROLES if key.startswith(role)), key)
    return _is_client_key(bare) or key in _POLICY_KEYS


def _read_servers(text: str | None, problems: list[Problem]) -> tuple[str, ...]:
    if text is None:
        problems.append(Problem(_WHERE, "bootstrap.servers", "missing", "give the cluster's brokers, host:port"))
        return ()
    try:
        return parse_servers(text)
    except ValueError as error:
        problems.append(Problem(_WHERE, "bootstrap.servers", str(error), "write host1:9092, host2:9092"))
        return ()


def _read_security(client: Mapping[str, str], problems: list[Problem]) -> Security:
    lines = {key: Value(text, _WHERE, key) for key, text in client.items() if key.startswith(_SECURITY_STEMS)}
    protocol = Value(client.get("security.protocol", "PLAINTEXT"), _WHERE, "security.protocol")
    found = read_security(protocol, lines)
    if isinstance(found, Problem):
        problems.append(found)
        return Security()
    return found


def _read_timeout(text: str, problems: list[Problem]) -> int:
    if text.strip().isdigit() and int(text) > 0:
        return int(text)
    problems.append(Problem(_WHERE, "request.timeout.ms", f"{text!r} is no number of milliseconds"))
    return 1


def _read_policy(texts: Mapping[str, str], problems: list[Problem]) -> ReplicationPolicy:
    class_key, separator_key, internal_key, alias_key, prefix_key, suffix_key = _POLICY_KEYS
    is_internal_too = texts.get(internal_key, "true").strip().lower()
    if is_internal_too not in {"true", "false"}:
        problems.append(Problem(_WHERE, internal_key, f"{is_internal_too!r} is neither true nor false"))
    try:
        # As in Java: without an alias a topic's origin is unknown.
        return load_policy(
            texts.get(class_key, _DEFAULT_POLICY_CLASS).strip(),
            source_alias=texts.get(alias_key, ""),
            separator=texts.get(separator_key, DEFAULT_SEPARATOR),
            internal_separator_enabled=is_internal_too == "true",
            prefix=texts.get(prefix_key, ""),
            suffix=texts.get(suffix_key, ""),
        )
    except PluginError as error:
        problems.append(Problem(_WHERE, error.key, f"{error.class_name}: {error.reason}", error.hint))
        return DefaultReplicationPolicy()
