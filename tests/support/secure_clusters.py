"""
Clusters of one broker with a listener for every way to come in, and ACLs that grant what a test says.

The PLAINTEXT listener, by which tests themselves write, read and grant, is the super user's; the mirror never uses it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import attrs

from mm2py.devkit.broker import KafkaCluster
from tests.support.brokers import NEVER_KILLED
from tests.support.certificates import PASSWORD, Authority, Certificate
from tests.support.java_programs import java_program


LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SCRAM": "SASL_SSL",
    "PLAIN": "SASL_PLAINTEXT",
    "OAUTH": "SASL_PLAINTEXT",
}
#: The password is another one in each run, so that it may be searched for on a machine that runs other tests.
USER, USER_PASSWORD = "mm2", f"mm2-s3cr3t-{secrets.token_hex(4)}"
HOSTS = ("127.0.0.1", "localhost")
_MODULES = "org.apache.kafka.common.security"


@attrs.frozen
class SecureCluster:
    """A running cluster, and what it takes to come in."""

    cluster: KafkaCluster
    authority: Authority
    directory: Path

    def client_keys(self, listener: str, **more: str) -> dict[str, str]:
        """Return the client settings for *listener*; those in *more* (underscores for dots) win or come on top."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.directory / "authority.pem")}
        keys: dict[str, str] = {"bootstrap.servers": self.cluster.servers(listener)}
        keys["security.protocol"] = LISTENERS[listener]
        if LISTENERS[listener].endswith("SSL"):
            keys |= trust
        if listener == "MUTUAL":
            keys |= {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(self.directory / "client.p12"),
                "ssl.keystore.password": PASSWORD,
            }
        elif listener == "SCRAM":
            keys |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": scram_line()}
        elif listener == "PLAIN":
            keys |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": plain_line()}
        elif listener == "OAUTH":
            keys |= {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": unsecured_line(USER)}
        return keys | {name.replace("_", "."): value for name, value in more.items()}

    async def grant(self, principal: str, *rules: str) -> None:
        """
        Let *principal* do what *rules* say, each a resource, its name and operations: ``topic orders READ,DESCRIBE``.

        A name that ends in a dot or a dash stands for all that begin so.
        """
        await self._tell("grant", principal, rules)

    async def revoke(self, principal: str, *rules: str) -> None:
        """Take back what was granted."""
        await self._tell("revoke", principal, rules)

    async def _tell(self, verb: str, principal: str, rules: tuple[str, ...]) -> None:
        words = []
        for rule in rules:
            resource, name, operations = rule.split()
            pattern = "PREFIXED" if name.endswith((".", "-")) else "LITERAL"
            words += [verb, principal, resource.upper(), pattern, name, operations]
        await java_program("Grants").ask(self.cluster.bootstrap_servers, *words)

    async def set_password(self, user: str, password: str) -> None:
        """Change a SCRAM user's password."""
        await java_program("Grants").ask(self.cluster.bootstrap_servers, "password", user, password)

    async def show_certificate(self, listener: str, certificate: Certificate) -> None:
        """Have the broker show another certificate at *listener* from now on."""
        path = certificate.pkcs12(self.directory / f"broker-{secrets.token_hex(4)}.p12")
        await java_program("Grants").ask(self.cluster.bootstrap_servers, "store", listener, str(path))


def plain_line(user: str = USER, password: str = USER_PASSWORD) -> str:
    return f'{_MODULES}.plain.PlainLoginModule required username="{user}" password="{password}";'


def scram_line(user: str = USER, password: str = USER_PASSWORD) -> str:
    return f'{_MODULES}.scram.ScramLoginModule required username="{user}" password="{password}";'


def unsecured_line(user: str) -> str:
    module = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
    return f'{module} required unsecuredLoginStringClaim_sub="{user}";'


def secure_cluster(
    name: str, directory: Path, *, authority: Authority, properties: Mapping[str, str] | None = None
) -> SecureCluster:
    """Make a cluster that is not started yet; *authority* signs brokers' certificates and clients' ones."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "authority.pem").write_text(authority.pem)
    authority.sign("broker", *HOSTS).pkcs12(directory / "broker.p12")
    authority.sign("mm2").pkcs12(directory / "client.p12")
    authority.pkcs12(directory / "trust.p12")
    settings = {
        **NEVER_KILLED,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        # Certificates that are shown later may have other subjects.
        "ssl.allow.dn.changes": "true",
        "ssl.allow.san.changes": "true",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(directory / "broker.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(directory / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
        **{
            f"listener.name.{name.lower()}.ssl.keystore.{key}": value
            for name, protocol in LISTENERS.items()
            if protocol.endswith("SSL")
            for key, value in (("location", str(directory / "broker.p12")), ("password", PASSWORD), ("type", "PKCS12"))
        },
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.tls.ssl.client.auth": "none",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": plain_line("broker", "x")[:-1]
        + f' user_{USER}="{USER_PASSWORD}" user_other="other-pw";',
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": scram_line("broker", "x"),
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": unsecured_line("broker"),
        **(properties or {}),
    }
    cluster = KafkaCluster(
        name, properties=settings, listeners=LISTENERS, scram_users={USER: USER_PASSWORD, "other": "other-pw"}
    )
    return SecureCluster(cluster, authority, directory)
