"""Where tokens come from when no endpoint is asked."""

from __future__ import annotations

import asyncio
import base64
import http.client
import io
import json
import sys
import types
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mm2py.clock import SystemClock
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.security import oauth
from mm2py.wire.security.oauth import TokenError, forget_token, token_for


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Let no test meet another one's tokens."""
    oauth._tokens.clear()
    oauth._fetches.clear()
    yield
    oauth._tokens.clear()
    oauth._fetches.clear()


def _endpoint(server: str = "b:1", **keys: str) -> ClusterEndpoint:
    pairs = {"sasl.mechanism": "OAUTHBEARER"} | {name.replace("_", "."): value for name, value in keys.items()}
    return ClusterEndpoint("B", (server,), security=Security("SASL_SSL", tuple(sorted(pairs.items()))))


def _claims(token: str) -> dict[str, object]:
    payload = token.split(".")[1]
    found: dict[str, object] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


class OurTokens:
    """A provider as users write them."""

    asked = 0

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    async def token(self) -> tuple[str, float]:
        OurTokens.asked += 1
        return f"{self._options['prefix']}-{OurTokens.asked}", 100.0

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class PlainTokens:
    """A provider without a coroutine, whose token says how long it lives."""

    def __init__(self, _options: Mapping[str, str]) -> None:
        claims = {"exp": SystemClock().wall_ms() / 1000 + 50}
        self._token = "e30." + base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=") + "."

    def token(self) -> str:
        return self._token


class BrokenTokens:
    """A provider that fails with a secret in its words."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._secret = options["secret"]

    def token(self) -> str:
        raise RuntimeError(f"cannot log in with {self._secret}")


class LongTokens:
    """A provider whose life of a token is another token."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._secret = options["secret"]

    def token(self) -> tuple[str, str]:
        return self._secret, self._secret


class ExtendedTokens(PlainTokens):
    """A provider whose extensions are none."""

    def extensions(self) -> object:
        return None


async def test_a_class_of_one_s_own() -> None:
    """It is made with the JAAS options, asked once until four fifths of the token's life are over, then again."""
    OurTokens.asked = 0
    endpoint = _endpoint(
        sasl_login_callback_handler_class=f"{__name__}.OurTokens", sasl_jaas_config="M required prefix=t;"
    )
    first, again = await token_for(endpoint), await token_for(endpoint)
    await asyncio.sleep(81)
    later = await token_for(endpoint)
    forget_token(endpoint)
    last = await token_for(endpoint)

    assert [token.text for token in (first, again, later, last)] == ["t-1", "t-1", "t-2", "t-3"]
    assert first.extensions == {"logicalCluster": "lkc-1"}
    assert "t-1" not in repr(first)


class AwayTokens(OurTokens):
    """A provider that is away for a while, and holds who asks."""

    is_away = False
    holds_s = 0.0

    async def token(self) -> tuple[str, float]:
        if AwayTokens.is_away:
            await asyncio.sleep(AwayTokens.holds_s)
            raise ConnectionError("nobody there")
        return await super().token()


@pytest.mark.parametrize("holds_s", [0.0, 60.0])
async def test_a_provider_that_is_away_is_not_missed_while_a_token_is_good(holds_s: float) -> None:
    """
    A token is to be replaced after 80 s of 100, and the provider refuses, or does not answer.

    Connections get the old one until it is over, at once or nearly so; only then the provider's failure is theirs. It
    is asked all the while, and a new token is used as soon as there is one.
    """
    OurTokens.asked, AwayTokens.holds_s, AwayTokens.is_away = 0, holds_s, False
    keys = {"sasl_login_callback_handler_class": f"{__name__}.AwayTokens", "sasl_jaas_config": "M required prefix=t;"}
    endpoint, loop = _endpoint(**keys), asyncio.get_running_loop()
    await token_for(endpoint)
    AwayTokens.is_away = True
    await asyncio.sleep(81)
    asked_at = loop.time()
    good = [await token_for(endpoint) for _ in range(3)]
    waited_s = loop.time() - asked_at
    await asyncio.sleep(20)
    with pytest.raises(TokenError) as caught:
        await token_for(endpoint)
    AwayTokens.is_away = False
    await asyncio.sleep(60)
    back = await token_for(endpoint)

    assert ({token.text for token in good}, back.text) == ({"t-1"}, "t-2")
    assert waited_s <= 3
    assert "AwayTokens" in str(caught.value)


class LateTokens(OurTokens):
    """A provider whose answer is taken a minute after it was given."""

    async def token(self) -> tuple[str, float]:
        found = await super().token()
        await asyncio.sleep(60)
        return found


async def test_an_answer_that_is_taken_late_makes_no_token_live_longer() -> None:
    """A worker's loop stands still between its epochs, and a fetch may last from one to another."""
    OurTokens.asked, begun = 0, asyncio.get_running_loop().time()
    keys = {"sasl_login_callback_handler_class": f"{__name__}.LateTokens", "sasl_jaas_config": "M required prefix=t;"}
    token = await token_for(_endpoint(**keys))

    assert token.last_s <= begun + 100


def test_an_endpoint_is_given_up_before_its_connection() -> None:
    """Else the reason would be that the connection took too long, with no word about the endpoint."""
    assert 1000 * oauth._timeout_s({}) < _endpoint().connection_setup_ms


async def test_many_connections_ask_once() -> None:
    """Connections that need a token at the same moment share one."""
    OurTokens.asked = 0
    endpoint = _endpoint(
        sasl_login_callback_handler_class=f"{__name__}:OurTokens", sasl_jaas_config="M required prefix=t;"
    )
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(token_for(endpoint))

    assert OurTokens.asked == 1


async def test_a_plain_method_and_a_life_in_the_token() -> None:
    """A method that is no coroutine runs on a thread; without a life of its own a token's exp counts."""
    token = await token_for(_endpoint(sasl_login_callback_handler_class=f"{__name__}.PlainTokens"))

    assert 35 < token.use_until - asyncio.get_running_loop().time() <= 40


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"sasl_login_callback_handler_class": "no.such.Thing"}, "no.such.Thing cannot be loaded"),
        (
            {
                "sasl_login_callback_handler_class": f"{__name__}.BrokenTokens",
                "sasl_jaas_config": 'M required secret="hush-hush";',
            },
            "BrokenTokens failed: RuntimeError: cannot log in with ***",
        ),
        (
            {
                "sasl_login_callback_handler_class": f"{__name__}.LongTokens",
                "sasl_jaas_config": 'M required secret="hush-hush";',
            },
            "LongTokens gave a life that is no number",
        ),
        (
            {"sasl_login_callback_handler_class": f"{__name__}.ExtendedTokens"},
            "or extensions that are no mapping",
        ),
        ({"sasl_oauthbearer_token_endpoint_url": "file:///none"}, "the token's file /none: No such file"),
        ({"sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/t"}, "clientId and clientSecret are missing"),
        ({}, "there is no source of tokens"),
        ({"sasl_jaas_config": "M"}, "sasl.jaas.config: the word 'required'"),
        (
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_jaas_config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
                "sasl_login_callback_handler_class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
            },
            "pip install 'mm2py[aws]'",
        ),
        ({"sasl_mechanism": "AWS_MSK_IAM"}, "pip install 'mm2py[aws]'"),
    ],
)
async def test_no_token(keys: dict[str, str], problem: str) -> None:
    """Why there is none is said, without a secret."""
    with pytest.raises(TokenError) as caught:
        await token_for(_endpoint(**keys))

    assert problem in str(caught.value)
    assert "hush" not in str(caught.value)


async def test_a_token_in_a_file(tmp_path: Path) -> None:
    """The file is read when a token is due; what a file of old holds is of no use for long."""
    path = tmp_path / "token"
    path.write_text(" opaque-token\n")
    token = await token_for(_endpoint(sasl_oauthbearer_token_endpoint_url=path.as_uri()))

    assert token.text == "opaque-token"


async def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    """Of what is no text nothing is shown."""
    path = tmp_path / "token"
    path.write_bytes(b"\xffhush")

    with pytest.raises(TokenError, match=r"the token's file .*token is no text in UTF-8$"):
        await token_for(_endpoint(sasl_oauthbearer_token_endpoint_url=path.as_uri()))


@pytest.mark.parametrize("error", [http.client.IncompleteRead(b"hush", 9), http.client.BadStatusLine("hush")])
@pytest.mark.parametrize("status", [200, 401])
async def test_an_answer_that_breaks_off(
    monkeypatch: pytest.MonkeyPatch, error: http.client.HTTPException, status: int
) -> None:
    """A token endpoint that hangs up within its answer, or does not speak HTTP, is one that gives no token."""

    class Answer(io.BytesIO):
        def read(self, *_size: object) -> bytes:
            raise error

    def urlopen(request: urllib.request.Request, **_more: object) -> Answer:
        if status != 200:
            raise urllib.error.HTTPError(request.full_url, status, "Unauthorized", http.client.HTTPMessage(), Answer())
        return Answer()

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    keys = {
        "sasl_oauthbearer_token_endpoint_url": "http://idp/t",
        "sasl_jaas_config": "M required clientId=a clientSecret=b;",
    }

    with pytest.raises(TokenError) as caught:
        await token_for(_endpoint(**keys))
    assert str(caught.value).startswith("http://idp/t " + ("broke its answer off" if status == 200 else "answered 401"))
    assert "hush" not in str(caught.value)


async def test_unsecured_tokens() -> None:
    """Without an endpoint, claims in the JAAS line make a token without a signature, as Java's default handler does."""
    line = (
        'M required unsecuredLoginStringClaim_sub="mm2" unsecuredLoginNumberClaim_level="7" '
        'unsecuredLoginListClaim_roles=",a,b" unsecuredLoginLifetimeSeconds="60" extension_zone="x";'
    )
    token = await token_for(_endpoint(sasl_jaas_config=line))
    claims = _claims(token.text)

    assert (claims["sub"], claims["level"], claims["roles"]) == ("mm2", 7.0, ["a", "b"])
    assert token.text.endswith(".")
    assert token.extensions == {"zone": "x"}


@pytest.mark.parametrize(
    ("server", "options", "called"),
    [
        ("b-1.shop.abc.c2.kafka.eu-west-1.amazonaws.com:9098", "", ("generate_auth_token", "eu-west-1")),
        (
            "boot-x.c1.kafka-serverless.us-east-2.amazonaws.com:9098",
            'awsProfileName="ops"',
            ("generate_auth_token_from_profile", "us-east-2", "ops"),
        ),
        (
            "b:9098",
            'awsRegion="eu-north-1" awsRoleArn="arn:aws:iam::1:role/mm2"',
            ("generate_auth_token_from_role_arn", "eu-north-1", "arn:aws:iam::1:role/mm2", "mm2py"),
        ),
    ],
)
async def test_amazon_s_signer(
    monkeypatch: pytest.MonkeyPatch, server: str, options: str, called: tuple[str, ...]
) -> None:
    """The signer is asked by region, profile or role; region and options are found where Java's plug-in finds them."""
    calls: list[tuple[str, ...]] = []

    class MSKAuthTokenProvider:
        def __getattr__(self, name: str) -> object:
            def sign(*words: str) -> tuple[str, int]:
                calls.append((name, *words))
                return "signed", SystemClock().wall_ms() + 900_000

            return sign

    signer = types.ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = MSKAuthTokenProvider()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)
    line = f"software.amazon.msk.auth.iam.IAMLoginModule required {options};"
    token = await token_for(_endpoint(server, sasl_mechanism="AWS_MSK_IAM", sasl_jaas_config=line))

    assert calls == [called]
    assert token.text == "signed"
