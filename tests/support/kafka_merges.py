"""
What Kafka makes of an ``mm2.properties``: the config of a pair's worker and those of its three connectors, each a flat
map, and what their clients are configured with. Each function is one of Kafka's 4.3, layer by layer: later ones
overwrite earlier ones. `tests/integration/test_java_settings.py` holds them against Kafka's, and
`tests/unit/config/test_kafka_merges.py` mm2py against them, without Java. References to value providers stay as they
are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from mm2py.config.layers import Side
from mm2py.model.flow import Flow


#: A config, or what a file says: values by their keys.
Config: TypeAlias = Mapping[str, str]

_SECURITY: Final = """
security.protocol
ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
"""
#: What clients inherit from their cluster and from the top level (MirrorClientConfig.CLIENT_CONFIG_DEF).
CLIENT_KEYS: Final = frozenset(["bootstrap.servers", *_SECURITY.split()])
#: What connectors inherit from the top level (MirrorMakerConfig.allConfigNames).
CONNECTOR_KEYS: Final = frozenset(
    f"""{_SECURITY}
name connector.class connector.plugin.version tasks.max tasks.max.enforce enabled admin.timeout.ms config.action.reload
config.providers key.converter key.converter.plugin.version value.converter value.converter.plugin.version
header.converter header.converter.plugin.version transforms predicates metric.names.formats metric.reporters
errors.log.enable errors.log.include.messages errors.retry.delay.max.ms errors.retry.timeout errors.tolerance
source.cluster.alias target.cluster.alias forwarding.admin.class consumer.poll.timeout.ms replication.factor
replication.policy.class replication.policy.internal.topic.separator.enabled replication.policy.separator
topics topics.exclude topic.filter.class refresh.topics.enabled refresh.topics.interval.seconds
config.properties.exclude config.property.filter.class sync.topic.configs.enabled sync.topic.configs.interval.seconds
sync.topic.acls.enabled sync.topic.acls.interval.seconds emit.offset-syncs.enabled offset-syncs.topic.location
offset-syncs.topic.replication.factor offset.lag.max heartbeats.replication.enabled
groups groups.exclude group.filter.class refresh.groups.enabled refresh.groups.interval.seconds
emit.checkpoints.enabled emit.checkpoints.interval.seconds checkpoints.topic.replication.factor
sync.group.offsets.enabled sync.group.offsets.interval.seconds
emit.heartbeats.enabled emit.heartbeats.interval.seconds heartbeats.topic.replication.factor
""".split()
)

_PACKAGE: Final = "org.apache.kafka.connect.mirror."
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_PROVIDERS: Final = "config.providers"
#: What the worker takes from the top level, beside what clients inherit.
_WORKER_STEMS: Final = (
    "offset.storage", "config.storage", "status.storage", "key.converter", "value.converter", "header.converter",
    "task", "worker", "replication.policy",
)  # fmt: skip
#: Kafka takes a cluster's key for a client's if it begins like that, with or without a dot.
_CLIENTS: Final = ("consumer", "producer", "admin")


def cluster_props(originals: Config, alias: str) -> dict[str, str]:
    """Return what a cluster's lines come to (MirrorMakerConfig.clusterProps)."""
    props = _stripped(originals, f"{alias}.")
    for inherited, is_own in ((_only(props, CLIENT_KEYS), True), (_only(originals, CLIENT_KEYS), False)):
        for key, value in inherited.items():
            for name in (*(f"{client}.{key}" for client in _CLIENTS), *(() if is_own else (key,))):
                props.setdefault(name, value)
    return props


def worker_config(originals: Config, pair: Flow) -> dict[str, str]:
    """Return the config of the Connect worker that runs a pair's connectors (MirrorMakerConfig.workerConfig)."""
    props = cluster_props(originals, pair.target)
    for stem in (*_WORKER_STEMS, _PROVIDERS):
        props |= _beginning(originals, stem)
    defaults = {
        "client.id": str(pair),
        "group.id": f"{pair.source}-mm2",
        "offset.storage.topic": f"mm2-offsets.{pair.source}.internal",
        "status.storage.topic": f"mm2-status.{pair.source}.internal",
        "config.storage.topic": f"mm2-configs.{pair.source}.internal",
        **{f"{kind}.converter": _BYTES for kind in ("key", "value", "header")},
    }
    return {**defaults, **props}


def connector_config(originals: Config, pair: Flow, connector: str) -> dict[str, str]:
    """Return the config of a pair's *connector*, by its class's simple name (MirrorMakerConfig.connectorBaseConfig)."""
    props = _only(originals, CONNECTOR_KEYS)
    for stem in (_PROVIDERS, "replication.policy"):
        props |= _beginning(originals, stem)
    for side, alias in ((Side.SOURCE, pair.source), (Side.TARGET, pair.target)):
        for key, value in cluster_props(originals, alias).items():
            props[f"{side.value}.{key}" if key.startswith(_CLIENTS) else f"{side.value}.cluster.{key}"] = value
    defaults = {
        "name": connector,
        "connector.class": _PACKAGE + connector,
        "source.cluster.alias": pair.source,
        "target.cluster.alias": pair.target,
        "enabled": "false",
    }
    return {**defaults, **props, **_stripped(originals, f"{pair}.")}


def client_config(connector: Config, side: Side, client: str) -> dict[str, str]:
    """Return what a connector makes a *client* of one of its clusters with: a consumer, a producer or an admin
    (MirrorConnectorConfig.sourceConsumerConfig and its siblings).
    """
    shared = _only(_stripped(connector, f"{side.value}.cluster."), CLIENT_KEYS)
    return {**shared, **_stripped(connector, f"{client}."), **_stripped(connector, f"{side.value}.{client}.")}


def producer_config(worker: Config, connector: Config) -> dict[str, str]:
    """Return what Connect makes the producer of a source connector's records with (Worker.baseProducerConfigs)."""
    own = {"bootstrap.servers": worker["bootstrap.servers"]} if "bootstrap.servers" in worker else {}
    return {**own, **_stripped(worker, "producer."), **_stripped(connector, "producer.override.")}


def _only(config: Config, keys: frozenset[str]) -> dict[str, str]:
    return {key: value for key, value in config.items() if key in keys}


def _beginning(config: Config, stem: str) -> dict[str, str]:
    return {key: value for key, value in config.items() if key.startswith(stem)}


def _stripped(config: Config, prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in _beginning(config, prefix).items() if key != prefix}
