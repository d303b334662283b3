"""Rows of the key table: TLS and SASL, and how secrets reach Spark's executors."""

from __future__ import annotations

from mm2py.config.keys.row import Check, Key, Kind, Place, Section, one_of_in_any_case


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
_STORES = ("JKS", "PKCS12", "PEM")
#: Kafka's own keys that have no effect here: they are no misspellings of ours, and no secrets.
KAFKAS_OWN = (
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.class",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "security.providers",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
#: What the names of Java's handlers begin with that need no class of Python's.
BUILT_IN_HANDLERS = ("org.apache.kafka.", "software.amazon.msk.")


def _host_check(value: object) -> str | None:
    is_known = isinstance(value, str) and value.strip().lower() in ("", "https")
    return None if is_known else "expected https, or nothing to switch the check off"


def _versions(value: object) -> str | None:
    unknown = [word for word in value if word not in _VERSIONS] if isinstance(value, tuple) else []
    return f"unknown are {', '.join(unknown)}; known are {', '.join(_VERSIONS)}" if unknown else None


def _unless_empty(check: Check) -> Check:
    """Let an empty value pass, which is no value: templates have such lines for clusters that need none of them."""
    return lambda value: check(value) if value else None


def _url(value: object) -> str | None:
    is_known = str(value).startswith(("https://", "http://", "file:"))
    return None if is_known else "expected a URL that begins with https://, http:// or file:"


def _plain(name: str, doc: str, check: Check | None = None, default: str | None = None) -> Key:
    return Key(name, Kind.STRING, default, Place.CLUSTER, doc, check=check)


def _secret(name: str, doc: str) -> Key:
    return Key(name, Kind.PASSWORD, None, Place.CLUSTER, doc, is_secret=True)


SECURITY = Section(
    "TLS and SASL",
    "Written like all settings of a cluster: for one (`A.ssl.truststore.location`), at the top level for all, or for "
    "one client. [security.md](security.md) describes each mechanism.",
    (
        Key("security.protocol", Kind.STRING, "PLAINTEXT", Place.CLUSTER,
            "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, in upper or lower case.",
            check=one_of_in_any_case(*PROTOCOLS)),
        _plain("ssl.truststore.location", "File with the trusted certificates; the system's if unset. It is reread "
               "when it changes."),
        _plain("ssl.truststore.type", "JKS, PKCS12 or PEM. As in Java, the first two are interchangeable.",
               _unless_empty(one_of_in_any_case(*_STORES)), "JKS"),
        _secret("ssl.truststore.password", "Password of the trust store."),
        _secret("ssl.truststore.certificates", "The certificates themselves, as PEM, instead of a file."),
        _plain("ssl.keystore.location", "File with the client's own key and certificate, for brokers that ask for one. "
               "It is reread when it changes."),
        _plain("ssl.keystore.type", "JKS, PKCS12 or PEM.", _unless_empty(one_of_in_any_case(*_STORES)), "JKS"),
        _secret("ssl.keystore.password", "Password of the key store."),
        _secret("ssl.key.password", "Password of the private key, if different from the store's."),
        _secret("ssl.keystore.certificate.chain", "The certificate and its chain themselves, as PEM."),
        _secret("ssl.keystore.key", "The private key itself, as PEM (PKCS8)."),
        _plain("ssl.endpoint.identification.algorithm", "`https` checks that the broker's certificate matches its "
               "host name; an empty value switches the check off.", _host_check, "https"),
        Key("ssl.enabled.protocols", Kind.LIST, "TLSv1.2,TLSv1.3", Place.CLUSTER, "TLS versions to offer.",
            check=_versions),
        Key("ssl.cipher.suites", Kind.LIST, None, Place.CLUSTER,
            "Cipher suites to offer for TLS 1.2, with Java's names."),
        _plain("sasl.mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI.",
               _unless_empty(one_of_in_any_case(*MECHANISMS)), "GSSAPI"),
        _secret("sasl.jaas.config", 'The login: `MODULE required username="…" password="…";`.'),
        _plain("sasl.oauthbearer.token.endpoint.url", "Where tokens come from: the URL of an endpoint for the client "
               "credentials grant, or `file:` and the path of a file that holds one.", _unless_empty(_url)),
        _plain("sasl.oauthbearer.client.credentials.client.id", "The client's id (KIP-1139); else `clientId` in "
               "`sasl.jaas.config`."),
        _secret("sasl.oauthbearer.client.credentials.client.secret", "The client's secret; else `clientSecret` in "
                "`sasl.jaas.config`."),
        _plain("sasl.oauthbearer.scope", "The scope to request; else `scope` in `sasl.jaas.config`."),
        Key("sasl.oauthbearer.header.urlencode", Kind.BOOLEAN, "false", Place.CLUSTER,
            "Whether id and secret are URL-encoded (RFC 6749)."),
        Key("sasl.login.connect.timeout.ms", Kind.INT, "10000", Place.CLUSTER,
            "Time limit for the token endpoint; the greater of this and `sasl.login.read.timeout.ms` applies."),
        Key("sasl.login.read.timeout.ms", Kind.INT, "10000", Place.CLUSTER,
            "Time limit for the token endpoint; the greater of this and `sasl.login.connect.timeout.ms` applies."),
        _plain("sasl.login.callback.handler.class", "Your own Python class that provides tokens. Java's own class "
            "names stand for the built-in ones; [security.md](security.md#java-classes-of-other-makers) has what to "
            "write instead of others."),
        _plain("sasl.client.callback.handler.class", "Kafka's and Amazon MSK's own classes are built in; "
            "only their names are accepted."),
        _plain("sasl.kerberos.service.name", "The brokers' Kerberos service; else `serviceName` in `sasl.jaas.config`, "
               "else `kafka`."),
        Key("secrets.key.file", Kind.STRING, None, Place.TOP,
            "File with a key, the same on this machine and on all of Spark's, that encrypts secrets sent to "
            "executors. Needed on a Spark cluster whose own traffic is not encrypted."),
        Key("ssl.*", Kind.PASSWORD, None, Place.CLUSTER, "Java's other TLS settings.", acts=False, is_secret=True),
        Key("sasl.*", Kind.PASSWORD, None, Place.CLUSTER, "Java's other SASL settings.", acts=False, is_secret=True),
    ),
)  # fmt: skip
