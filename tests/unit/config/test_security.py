"""What is said about security lines before anything is started."""

from __future__ import annotations

import pytest

from mm2py.model.endpoint import Security
from tests.support.config_files import ConfigFile


PLAIN = 'M.PlainLoginModule required username="u" password="hush";'
MSK = "software.amazon.msk.auth.iam.IAMLoginModule required;"
MSK_TOKENS = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
SCRAM = 'M.ScramLoginModule required username="u" password="hush";'


def test_each_side_has_its_own(config: ConfigFile) -> None:
    """Source and target differ, a line for all is beaten by a cluster's, and a client's beats that."""
    of_cluster, of_client = PLAIN.replace('"u"', "cluster"), PLAIN.replace('"u"', "client")
    settings = config.load(
        "security.protocol = sasl_ssl\nsasl.mechanism = PLAIN\n"
        f"sasl.jaas.config = {PLAIN}\nA.sasl.jaas.config = {of_cluster}\n"
        f"A.consumer.sasl.jaas.config = {of_client}\n"
        "B.security.protocol = SSL\nB.ssl.truststore.location = /b.jks\n"
    )
    (flow,) = (flow for flow in settings.flows if flow.is_enabled)
    source, target = dict(flow.source.security.client_keys), dict(flow.target.security.client_keys)

    assert (flow.source.security.protocol, flow.target.security.protocol) == ("SASL_SSL", "SSL")
    assert source["sasl.jaas.config"] == of_client
    assert "ssl.truststore.location" not in source
    assert target["ssl.truststore.location"] == "/b.jks"
    assert dict(settings.clusters["A"].security.client_keys)["sasl.jaas.config"] == of_cluster


def test_blanks_around_a_secret_are_no_part_of_it(config: ConfigFile) -> None:
    """A mounted secret often ends in a newline, and a line in a blank; Java trims both."""
    (config.path.parent / "pw").write_text("hush\n")
    settings = config.load(
        "config.providers = dir\n"
        "config.providers.dir.class = org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
        f"A.security.protocol = SSL\nA.ssl.truststore.location = /a.jks \n"
        f"A.ssl.truststore.password = ${{dir:{config.path.parent}:pw}}\nA.ssl.key.password = hush \n"
    )

    assert dict(settings.clusters["A"].security.client_keys) == {
        "ssl.truststore.location": "/a.jks",
        "ssl.truststore.password": "hush",
        "ssl.key.password": "hush",
    }


def test_plaintext_carries_nothing(config: ConfigFile) -> None:
    """Stray keys of a cluster that is entered in plaintext stay where they are."""
    settings = config.load(f"ssl.truststore.password = hush\nsasl.jaas.config = {PLAIN}\n")

    assert {flow.source.security for flow in settings.flows} == {Security()}


_ENDPOINT = "A.sasl.oauthbearer.token.endpoint.url"
_CLIENT = "A.sasl.oauthbearer.client.credentials.client"


@pytest.mark.parametrize(
    ("handler", "keys"),
    [
        (
            "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
            (
                f"leave it out, and write {_ENDPOINT} for oauth.token.endpoint.uri, {_CLIENT}.id for oauth.client.id, "
                f"{_CLIENT}.secret for oauth.client.secret, A.sasl.oauthbearer.scope for oauth.scope; "
                f"{_ENDPOINT} = file:PATH for oauth.access.token.location"
            ),
        ),
        (
            "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
            (
                "write A.sasl.mechanism = PLAIN, with the service account as username and its key in base64 as "
                f"password; or leave it out, run Google's kafka-auth-local-server, and write {_ENDPOINT} = "
                'http://localhost:14293 with clientId="unused" clientSecret="unused"'
            ),
        ),
        *(
            (
                name,
                (
                    f"leave it out, and write {_ENDPOINT} = "
                    f"https://login.microsoftonline.com/TENANT/oauth2/v2.0/token, {_CLIENT}.id, {_CLIENT}.secret, and "
                    "A.sasl.oauthbearer.scope = https://NAMESPACE.servicebus.windows.net/.default"
                ),
            )
            for name in (
                "com.azure.spring.cloud.service.kafka.KafkaOAuth2AuthenticateCallbackHandler",
                "io.conduktor.kafka.security.oauthbearer.azure.AzureManagedIdentityCallbackHandler",
                "com.microsoft.shop.CustomAuthenticateCallbackHandler",
            )
        ),
        (
            "com.shop.TokenHandler",
            f"write {_ENDPOINT}, {_CLIENT}.id and {_CLIENT}.secret, or name a Python class, see mm2py docs security",
        ),
    ],
)
def test_a_java_class_for_tokens_is_refused_with_the_keys_to_write(config: ConfigFile, handler: str, keys: str) -> None:
    """Each maker's has settings of its own; where nothing logs in with tokens, such a line is idle, as in Java."""
    line = f"A.sasl.login.callback.handler.class = {handler}"
    (problem,) = config.problems(
        f"A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER\nA.sasl.jaas.config = M required;\n{line}"
    )

    assert (problem.where, problem.message) == ("mm2.properties:8", "a Java class cannot be used here")
    assert problem.hint == keys
    assert config.load(line).notes == ()


def test_an_empty_value_is_none(config: ConfigFile) -> None:
    """Templates have lines for all that a cluster may need; only the check of host names is off by an empty one."""
    empty = (
        "sasl.mechanism", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url", "ssl.truststore.type",
        "ssl.truststore.location", "ssl.truststore.password", "ssl.keystore.type", "ssl.keystore.location",
    )  # fmt: skip
    lines = "".join(f"A.{key} =\n" for key in empty)
    found = config.load(f"{lines}A.security.protocol = SSL\nA.ssl.endpoint.identification.algorithm =\n")

    assert dict(found.clusters["A"].security.client_keys) == {"ssl.endpoint.identification.algorithm": ""}
    assert config.load(lines).clusters["A"].security == Security()


_SASL = "A.security.protocol = SASL_SSL\nA.sasl.mechanism = "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "A.security.protocol = TLS",
            "5: A.security.protocol: must be one of PLAINTEXT, SSL",
        ),
        (
            _SASL + "PLAIN",
            "5: A.security.protocol: A.sasl.jaas.config is missing (add A.sasl.jaas.config = MODULE",
        ),
        (
            f"A.security.protocol = SASL_SSL\nA.sasl.jaas.config = {SCRAM}",
            "6: A.sasl.jaas.config: sasl.mechanism is missing, so it is GSSAPI (add A.sasl.mechanism",
        ),
        (
            _SASL + "PLAIN\nA.sasl.jaas.config = M required username=u",
            "7: A.sasl.jaas.config: a semicolon is missing at the end; expected is MODULE required",
        ),
        (
            _SASL + "PLAIN\nA.sasl.jaas.config = M required username=hush;",
            "7: A.sasl.jaas.config: password missing",
        ),
        (_SASL, "6: A.sasl.mechanism: must not be empty with SASL_SSL (write one of PLAIN, SCRAM"),
        (
            _SASL + "NTLM",
            "6: A.sasl.mechanism: must be one of PLAIN, SCRAM-SHA-256",
        ),
        (
            _SASL + "OAUTHBEARER\nA.sasl.jaas.config = M required;",
            "7: A.sasl.jaas.config: there is no source of tokens (add A.sasl.oauthbearer.token",
        ),
        (
            (
                _SASL + "OAUTHBEARER\n"
                "A.sasl.oauthbearer.token.endpoint.url = https://x/\nA.sasl.jaas.config = M required clientId=x;"
            ),
            "8: A.sasl.jaas.config: the client's id or secret is missing (set A.sasl.oauthbearer.client",
        ),
        (
            "A.sasl.oauthbearer.token.endpoint.url = ftp://x/",
            "5: A.sasl.oauthbearer.token.endpoint.url: expected a URL that begins with https://",
        ),
        (
            f"{_SASL}OAUTHBEARER\nA.sasl.login.callback.handler.class = com.shop.TokenHandler",
            (
                "7: A.sasl.login.callback.handler.class: a Java class cannot be used here "
                "(write A.sasl.oauthbearer.token.endpoint.url, "
                "A.sasl.oauthbearer.client.credentials.client.id"
            ),
        ),
        (
            f"A.security.protocol = SASL_SSL\nA.consumer.sasl.jaas.config = {MSK}",
            (
                "6: A.consumer.sasl.jaas.config: sasl.mechanism is missing, so it is GSSAPI "
                "(add A.consumer.sasl.mechanism = AWS_MSK_IAM)"
            ),
        ),
        (
            (
                f"{_SASL}PLAIN\nA.sasl.jaas.config = {PLAIN}\n"
                "A.sasl.client.callback.handler.class = com.shop.ClientHandler"
            ),
            (
                "8: A.sasl.client.callback.handler.class: only Kafka's and Amazon MSK's own classes are "
                "built in (for tokens, name a Python class as A.sasl.login.callback.handler.class)"
            ),
        ),
        (
            f'{_SASL}AWS_MSK_IAM\nA.sasl.jaas.config = M required awsRoleArn="r" awsRoleExternalId="hush";',
            "7: A.sasl.jaas.config: awsRoleExternalId cannot be used here (put the role into a profile",
        ),
        (
            (
                f"{_SASL}OAUTHBEARER\nA.sasl.login.callback.handler.class = {MSK_TOKENS}\n"
                'A.sasl.jaas.config = M required awsRoleAccessKeyId="hush" awsRoleSecretAccessKey="hush";'
            ),
            "8: A.sasl.jaas.config: awsRoleAccessKeyId and awsRoleSecretAccessKey cannot be used here",
        ),
        ("A.ssl.truststore.type = BKS", "5: A.ssl.truststore.type: must be one of JKS, PKCS12, PEM"),
        ("A.ssl.enabled.protocols = SSLv3", "5: A.ssl.enabled.protocols: unknown are SSLv3"),
        (
            "A.ssl.endpoint.identification.algorithm = ldap",
            "5: A.ssl.endpoint.identification.algorithm: expected https, or nothing",
        ),
        (
            "A.security.protocol = SSL\nA.ssl.truststore.location = /x\nA.ssl.truststore.certificates = hush",
            "7: A.ssl.truststore.certificates: both this and A.ssl.truststore.location are set",
        ),
        (
            "A.security.protocol = SSL\nA.ssl.keystore.key = hush",
            "6: A.ssl.keystore.key: A.ssl.keystore.certificate.chain is missing",
        ),
    ],
)
def test_what_cannot_work_is_said_with_its_line(config: ConfigFile, text: str, problem: str) -> None:
    """Each mistake is named once, with the line to mend, and without a secret."""
    problems = config.refusals(text)

    assert [line.startswith(f"mm2.properties:{problem}") for line in problems] == [True], problems
    assert "hush" not in "".join(problems)


@pytest.mark.parametrize("way", ["A.", "A.consumer.", "A->B.source.cluster.", ""])
def test_java_s_lines_for_msk_are_taken_as_they_are(config: ConfigFile, way: str) -> None:
    """The four lines of Amazon's guide for Java: the class of the last one is built in, so nothing changes."""
    lines = [
        "security.protocol = SASL_SSL",
        "sasl.mechanism = AWS_MSK_IAM",
        f"sasl.jaas.config = {MSK}",
        "sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    ]
    settings = config.load("\n".join(way + line for line in lines))

    assert settings.notes == ()
    assert dict(settings.flows[0].source.security.client_keys)["sasl.mechanism"] == "AWS_MSK_IAM"


_SECURED = f"{_SASL}PLAIN\nA.sasl.jaas.config = {PLAIN}\n"
_ENCRYPTED = (
    "spark.authenticate = true\nspark.network.crypto.enabled = true\nspark.io.encryption.enabled = true\n"
    "spark.master = spark://m:7077\n"
)


def test_secrets_do_not_travel_in_clear(config: ConfigFile) -> None:
    """On a Spark cluster a file with secrets is refused, unless a key is shared or Spark encrypts what it sends."""
    (problem,) = config.refusals(f"{_SECURED}spark.master = spark://m:7077\n")

    assert problem.startswith("mm2.properties:8: secrets.key.file: passwords and keys would go to Spark's executors")
    assert config.load(f"{_SECURED}spark.master = spark://m:7077\nsecrets.key.file = /k").secrets_key_file == "/k"
    for text in (_SECURED, f"{_SECURED}spark.master = local[2]", _SECURED + _ENCRYPTED, "spark.master = yarn"):
        assert config.load(text).secrets_key_file == ""


@pytest.mark.parametrize("left_out", range(3))
def test_half_of_spark_s_encryption_is_none(config: ConfigFile, left_out: int) -> None:
    """All three of Spark's switches are needed: who may talk, what goes over the network, what goes to disks."""
    lines = _ENCRYPTED.splitlines()
    del lines[left_out]

    assert "secrets.key.file" in config.refusals(_SECURED + "\n".join(lines))[0]
