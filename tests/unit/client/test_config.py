"""The client's settings: Java's MirrorClientConfig keys, read as Java reads them."""

from __future__ import annotations

import pytest

from mm2py.client.config import MirrorClientConfig
from mm2py.config.problem import ConfigError
from mm2py.policy.replication import DefaultReplicationPolicy, IdentityReplicationPolicy


SERVERS = {"bootstrap.servers": "b1:9092,b2:9092"}
_LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hush";'


def test_a_mapping_written_for_java_does() -> None:
    """Servers, naming and security are taken; keys that mean nothing here are named, not refused."""
    config = MirrorClientConfig.from_mapping(
        {
            "bootstrap.servers": ["b1:9092", "b2:9092"],
            "replication.policy.separator": "_",
            "replication.policy.internal.topic.separator.enabled": False,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": _LOGIN,
            "max.poll.records": 7,
            "ssl.truststore.location": None,
        }
    )

    assert config == MirrorClientConfig(
        "b1:9092, b2:9092",
        policy=DefaultReplicationPolicy("_", internal_separator_enabled=False),
        security=config.security,
        unused=("max.poll.records",),
    )
    assert config.security.protocol == "SASL_PLAINTEXT"
    assert config.security.client_keys == (("sasl.jaas.config", _LOGIN), ("sasl.mechanism", "PLAIN"))


def test_lines_of_the_consumer_win_over_those_of_the_admin_client_and_plain_ones() -> None:
    """What Java gives to one of its two clients serves the one connection here."""
    config = MirrorClientConfig.from_mapping(
        {
            **SERVERS,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.jaas.config": _LOGIN,
            "sasl.mechanism": "GSSAPI",
            "admin.sasl.mechanism": "PLAIN",
            "consumer.sasl.mechanism": "SCRAM-SHA-256",
            "admin.bootstrap.servers": "c:9092",
            "consumer.request.timeout.ms": "5000",
        }
    )

    assert dict(config.security.client_keys)["sasl.mechanism"] == "SCRAM-SHA-256"
    assert (config.bootstrap_servers, config.request_timeout_ms, config.unused) == (("c:9092",), 5_000, ())


@pytest.mark.parametrize(
    ("alias", "source"), [({"source.cluster.alias": "A"}, "A"), ({}, None)], ids=["with alias", "without alias"]
)
@pytest.mark.parametrize(
    "policy", ["org.apache.kafka.connect.mirror.IdentityReplicationPolicy", IdentityReplicationPolicy], ids=type
)
def test_names_that_stay_need_the_source_s_alias(policy: object, alias: dict[str, str], source: str | None) -> None:
    """
    The identity policy, by name or, as in Java, the class itself, takes the alias from the mapping; without one
    topics have no source.
    """
    config = MirrorClientConfig.from_mapping({**SERVERS, "replication.policy.class": policy, **alias})

    assert isinstance(config.policy, IdentityReplicationPolicy)
    assert config.policy.topic_source("orders") == source


def test_every_problem_is_told_at_once() -> None:
    """A mapping that cannot be used says all that is wrong with it."""
    with pytest.raises(ConfigError) as caught:
        MirrorClientConfig.from_mapping(
            {
                "security.protocol": "TLS",
                "request.timeout.ms": "soon",
                "replication.policy.class": "com.shop.Policy",
                "replication.policy.internal.topic.separator.enabled": "perhaps",
            }
        )

    assert [problem.key for problem in caught.value.problems] == [
        "bootstrap.servers",
        "security.protocol",
        "request.timeout.ms",
        "replication.policy.internal.topic.separator.enabled",
        "replication.policy.class",
    ]


def test_an_address_that_cannot_be_read() -> None:
    """A server without a port is refused by name, in a mapping and as a keyword."""
    with pytest.raises(ConfigError, match="'b1' is not of the form host:port"):
        MirrorClientConfig.from_mapping({"bootstrap.servers": "b1"})
    with pytest.raises(ValueError, match="'b1' is not of the form host:port"):
        MirrorClientConfig("b1")


def test_secrets_are_not_shown() -> None:
    """Printing the settings prints no password."""
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": _LOGIN}
    config = MirrorClientConfig.from_mapping({**SERVERS, **security})

    assert "hush" in str(config.security.client_keys)
    assert "hush" not in repr(config)


def test_a_login_that_is_incomplete() -> None:
    """Security is judged as in mm2.properties: what is missing is named before anything connects."""
    security = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config is missing"):
        MirrorClientConfig.from_mapping({**SERVERS, **security})
