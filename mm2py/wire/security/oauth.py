"""
Tokens for SASL/OAUTHBEARER: where they come from, and when a new one is fetched.

A token is fetched once for a process and a cluster's settings and used by all its connections, until four fifths of
its life are over. What is left is for an identity provider that is away: until then connections get the token that
there is. The standard library's client asks the token endpoint, on a thread: workers need nothing for it.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import importlib
import inspect
import json
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from mm2py.clock import SystemClock
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.jaas import JaasError, parse_jaas
from mm2py.wire.security.contexts import SecuritySettingsError, context_of_keys


#: Java's classes for what is built in here.
_BUILT_IN: Final = re.compile(
    r"org\.apache\.kafka\.common\.security\.oauthbearer\."
    r"(?:(?:internals\.)?(?:secured|unsecured)\.)?\w*OAuthBearer(?:Unsecured)?LoginCallbackHandler"
)
_MSK_MODULE: Final = "aws_msk_iam_sasl_signer"
_MSK_LOGIN: Final = "software.amazon.msk.auth.iam."
_REGION: Final = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.(?:vpce\.)?amazonaws\.com")
_USED_SHARE: Final = 0.8
#: Later it may be over before a broker has looked at it.
_LAST_SHARE: Final = 0.95
#: How long connections wait for another token while the one that there is is good.
_SHORT_WAIT_S: Final = 1.0
#: After how long it is tried again to replace a token that is good for a while.
_RETRY_S: Final = 10.0
_DEFAULT_LIFE_S: Final = 300.0
_UNSECURED_LIFE_S: Final = 3600.0
#: Less than a connection may take with its login, or it would only say that it took too long.
_DEFAULT_TIMEOUT_MS: Final = 8_000
_LONGEST_ANSWER_BYTES: Final = 1024 * 1024
_SHOWN: Final = 200
_TOKENS_KEPT: Final = 8


class TokenError(Exception):
    """No token could be got. The message shows no secret."""

    def __init__(self, cause: str, *, may_lock: bool = False) -> None:
        super().__init__(cause)
        self.may_lock = may_lock


@attrs.frozen
class OAuthToken:
    """What a broker gets. From `use_until` on another one is fetched, at `last_s` it is over, in the loop's seconds."""

    text: str = attrs.field(repr=False)
    use_until: float
    last_s: float
    extensions: Mapping[str, str] = attrs.field(factory=dict, repr=False)


_tokens: dict[Security, OAuthToken] = {}
_fetches: dict[Security, asyncio.Task[OAuthToken]] = {}


async def token_for(endpoint: ClusterEndpoint) -> OAuthToken:
    """Return a token for *endpoint* that is good for a while; raise `TokenError` where none can be got."""
    loop, known = asyncio.get_running_loop(), _tokens.get(endpoint.security)
    if known is not None and known.use_until > loop.time():
        return known
    fetching = asyncio.shield(_fetching(endpoint, loop))
    if known is None or known.last_s <= loop.time():
        return await fetching
    try:
        async with asyncio.timeout(_SHORT_WAIT_S):
            return await fetching
    except (TimeoutError, TokenError):
        return known


def _fetching(endpoint: ClusterEndpoint, loop: asyncio.AbstractEventLoop) -> asyncio.Task[OAuthToken]:
    """Return the fetch for *endpoint* that is under way, or begin one. It outlives a connection that does not wait."""
    security = endpoint.security
    under_way = _fetches.get(security)
    if under_way is not None and not under_way.done() and under_way.get_loop() is loop:
        return under_way
    begun = _fetches[security] = loop.create_task(_renewed(endpoint), name=f"fetch a token for {endpoint.alias}")
    begun.add_done_callback(lambda it: None if it.cancelled() else it.exception())  # nothing may await it any more
    return begun


async def _renewed(endpoint: ClusterEndpoint) -> OAuthToken:
    loop, security = asyncio.get_running_loop(), endpoint.security
    # It lives from somewhere between here and the answer on; a worker that waits for its next plan takes that late.
    begun = loop.time()
    try:
        text, life_s, extensions = await _fetch(endpoint)
    except TokenError:
        if (known := _tokens.get(security)) is not None:
            _tokens[security] = attrs.evolve(known, use_until=min(known.last_s, loop.time() + _RETRY_S))
        raise
    while len(_tokens) >= _TOKENS_KEPT:
        _fetches.pop(gone := next(iter(_tokens)), None)
        del _tokens[gone]
    token = OAuthToken(text, begun + life_s * _USED_SHARE, begun + life_s * _LAST_SHARE, extensions)
    _tokens[security] = token
    return token


def forget_token(endpoint: ClusterEndpoint) -> None:
    """Let the next connection fetch a new token: the broker does not take this one."""
    _tokens.pop(endpoint.security, None)


def _is_of_msk(*java_classes: str) -> bool:
    return any(name.startswith(_MSK_LOGIN) for name in java_classes)


async def _fetch(endpoint: ClusterEndpoint) -> tuple[str, float, Mapping[str, str]]:
    keys = dict(endpoint.security.client_keys)
    try:
        line = parse_jaas(keys["sasl.jaas.config"]) if keys.get("sasl.jaas.config") else None
    except JaasError as error:
        raise TokenError(f"sasl.jaas.config: {error}") from error
    options = dict(line.options) if line else {}
    extensions = {name[10:]: value for name, value in options.items() if name.startswith("extension_")}
    handler = keys.get("sasl.login.callback.handler.class", "")
    module = line.module if line else ""
    if keys.get("sasl.mechanism", "").upper() == "AWS_MSK_IAM" or _is_of_msk(module, handler):
        text, life_s = await asyncio.to_thread(_msk_token, endpoint, options)
    elif handler and not _BUILT_IN.fullmatch(handler):
        return await _own_token(handler, keys, options)
    elif url := keys.get("sasl.oauthbearer.token.endpoint.url"):
        text, life_s = await asyncio.to_thread(_endpoint_token, endpoint.alias, url, keys, options)
    elif any(name.startswith("unsecuredLogin") for name in options):
        text, life_s = _unsecured_token(options)
    else:
        raise TokenError("there is no source of tokens: set sasl.oauthbearer.token.endpoint.url")
    return text, life_s, extensions


# From a token endpoint, by the client credentials grant (RFC 6749, section 4.4).


def _endpoint_token(cluster: str, url: str, keys: Mapping[str, str], options: Mapping[str, str]) -> tuple[str, float]:
    if url.startswith("file:"):
        return _token_in_file(urllib.parse.urlparse(url).path)
    client = keys.get("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId")
    secret = keys.get("sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret")
    if not client or secret is None:
        raise TokenError("clientId and clientSecret are missing in sasl.jaas.config")
    scope = keys.get("sasl.oauthbearer.scope") or options.get("scope")
    if keys.get("sasl.oauthbearer.header.urlencode", "false").strip().lower() == "true":
        client, secret = urllib.parse.quote_plus(client), urllib.parse.quote_plus(secret)
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    basic = base64.b64encode(f"{client}:{secret}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked with the settings
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    answer = _ask(request, _timeout_s(keys), _tls_of(cluster, url, options))
    try:
        content = json.loads(answer)
        text = content["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TokenError(f"the answer of {_shown(url)} holds no access_token") from error
    if not isinstance(text, str) or not text:
        raise TokenError(f"the answer of {_shown(url)} holds no access_token")
    expires_in = content.get("expires_in")
    is_given = isinstance(expires_in, int | float) and not isinstance(expires_in, bool) and expires_in > 0
    return text, float(expires_in) if is_given else _life_s(text)


def _ask(request: urllib.request.Request, timeout_s: float, context: ssl.SSLContext | None) -> bytes:
    where = _shown(request.full_url)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as response:  # noqa: S310
            answer: bytes = response.read(_LONGEST_ANSWER_BYTES)
            return answer
    except urllib.error.HTTPError as error:
        is_refused = error.code in {400, 401, 403}
        said = f"{where} answered {error.code} {error.reason}{_said(error)}"
        raise TokenError(said, may_lock=is_refused) from None
    except urllib.error.URLError as error:
        raise TokenError(f"{where} does not answer: {error.reason}") from None
    except (OSError, ValueError) as error:
        raise TokenError(f"{where} does not answer: {error}") from None
    except http.client.HTTPException as error:
        raise TokenError(f"{where} broke its answer off, or speaks no HTTP: {type(error).__name__}") from None


def _said(error: urllib.error.HTTPError) -> str:
    """Return the error that RFC 6749 lets an endpoint name; nothing else of an answer is shown."""
    try:
        content = json.loads(error.read(_LONGEST_ANSWER_BYTES))
        words = [str(content[name]) for name in ("error", "error_description") if content.get(name)]
    except (OSError, http.client.HTTPException, ValueError, TypeError, AttributeError, RecursionError):
        return ""
    return f" ({': '.join(words)[:_SHOWN]})" if words else ""


def _shown(url: str) -> str:
    """Show a URL without what might be a secret in it."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _timeout_s(keys: Mapping[str, str]) -> float:
    given = [keys.get(f"sasl.login.{name}.timeout.ms", "") for name in ("connect", "read")]
    return max((int(text) for text in given if text.isdigit()), default=_DEFAULT_TIMEOUT_MS) / 1000


def _tls_of(cluster: str, url: str, options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Make the TLS context for the endpoint from ``ssl.*`` options in the JAAS line, as Java does."""
    if not url.startswith("https:"):
        return None
    try:
        return context_of_keys(cluster, options)
    except SecuritySettingsError as error:
        raise TokenError(f"sasl.jaas.config: {error.key}: {error.problem}") from error


def _token_in_file(path: str) -> tuple[str, float]:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read().strip()
    except OSError as error:
        raise TokenError(f"the token's file {path}: {error.strerror}") from error
    except ValueError as error:
        raise TokenError(f"the token's file {path} is no text in UTF-8") from error
    return text, _life_s(text)


def _life_s(token: str) -> float:
    """Return how long *token* will live, by its own ``exp``; some minutes where it does not say."""
    try:
        payload = token.split(".")[1]
        expires = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        return max(0.0, float(expires) - _wall_s())
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return _DEFAULT_LIFE_S


def _wall_s() -> float:
    return SystemClock().wall_ms() / 1000


# Without an endpoint: unsecured tokens, for brokers that check nothing (Java's default handler).


def _unsecured_token(options: Mapping[str, str]) -> tuple[str, float]:
    claims: dict[str, Any] = {}
    for name, value in options.items():
        kind, _, claim = name.removeprefix("unsecuredLogin").partition("Claim_")
        if kind == "String":
            claims[claim] = value
        elif kind == "Number":
            claims[claim] = float(value)
        elif kind == "List" and value:
            claims[claim] = value[1:].split(value[0])
    life_s = float(options.get("unsecuredLoginLifetimeSeconds", _UNSECURED_LIFE_S))
    now = _wall_s()
    claims = {"iat": now, "exp": now + life_s, **claims}
    parts = ({"alg": "none"}, claims)
    return ".".join(_base64url(json.dumps(part).encode()) for part in parts) + ".", life_s


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# From Amazon's signer, and from a class of one's own.


def _msk_token(endpoint: ClusterEndpoint, options: Mapping[str, str]) -> tuple[str, float]:
    try:
        signer: Any = importlib.import_module(_MSK_MODULE).MSKAuthTokenProvider
    except ImportError as error:
        raise TokenError("AWS_MSK_IAM needs Amazon's signer: pip install 'mm2py[aws]', on executors too") from error
    region = options.get("awsRegion") or _region_of(endpoint)
    if not region:
        raise TokenError("the AWS region is unknown: set awsRegion in sasl.jaas.config, or AWS_REGION")
    try:
        if profile := options.get("awsProfileName"):
            text, expires_ms = signer.generate_auth_token_from_profile(region, profile)
        elif role := options.get("awsRoleArn"):
            session = options.get("awsRoleSessionName", "mm2py")
            text, expires_ms = signer.generate_auth_token_from_role_arn(region, role, session)
        else:
            text, expires_ms = signer.generate_auth_token(region)
    except Exception as error:
        raise TokenError(f"Amazon's signer: {type(error).__name__}: {error}") from error
    return text, max(0.0, expires_ms / 1000 - _wall_s())


def _region_of(endpoint: ClusterEndpoint) -> str | None:
    for server in endpoint.bootstrap_servers:
        if (match := _REGION.search(server.lower())) is not None:
            return match.group(1)
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


async def _own_token(
    handler: str, keys: Mapping[str, str], options: Mapping[str, str]
) -> tuple[str, float, Mapping[str, str]]:
    """
    Ask a class of the user's own.

    It is made with the JAAS options and called as ``token()``, a coroutine or not. That gives the token, or the token
    and its life in seconds; ``extensions()``, where it has one, gives SASL extensions.
    """
    made = _provider(handler, options)
    try:
        found = made.token() if inspect.iscoroutinefunction(made.token) else await asyncio.to_thread(made.token)
        found = await found if inspect.isawaitable(found) else found
        extensions = made.extensions() if hasattr(made, "extensions") else {}
    except Exception as error:
        secret = {*options.values(), *keys.values()}
        raise TokenError(f"{handler} failed: {_without(secret, f'{type(error).__name__}: {error}')}") from error
    text, life_s = found if isinstance(found, tuple) else (found, None)
    if not isinstance(text, str) or not text:
        raise TokenError(f"{handler}.token() gave no text")
    try:
        return text, float(life_s) if life_s is not None else _life_s(text), dict(extensions)
    except (TypeError, ValueError) as error:  # what they say may show the token
        raise TokenError(f"{handler} gave a life that is no number, or extensions that are no mapping") from error


def _provider(handler: str, options: Mapping[str, str]) -> Any:
    module, _, name = handler.replace(":", ".").rpartition(".")
    try:
        kind: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        cause = f"sasl.login.callback.handler.class {handler} cannot be loaded: {error}; name a Python class"
        raise TokenError(cause) from error
    try:
        return kind(dict(options))
    except Exception as error:
        raise TokenError(f"{handler} cannot be made: {type(error).__name__}") from error


def _without(secrets: set[str], text: str) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) > 3:  # noqa: PLR2004 - shorter ones are words like "true"
            text = text.replace(secret, "***")
    return text
