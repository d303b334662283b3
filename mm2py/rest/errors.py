"""What REST answers where it cannot do what it was asked: a status, and words in the shape of Connect's errors."""

from __future__ import annotations

import http
from typing import Final

import attrs
from aiohttp import web

from mm2py.config.problem import ConfigError
from mm2py.errors import (
    BrokerAnsweredError,
    BrokerConnectionError,
    ClusterUnreachableError,
    Mm2Error,
    OverrideConflictError,
    OverrideRejectedError,
    OverridesNotStoredError,
    UnknownConnectorError,
    UnknownFlowError,
    UnknownTaskError,
)


#: After so long a client may try again what failed because a cluster was away.
RETRY_AFTER_S: Final = 5
_NOT_FOUND = (UnknownFlowError, UnknownConnectorError, UnknownTaskError)
_AWAY = (OverridesNotStoredError, ClusterUnreachableError, BrokerConnectionError, BrokerAnsweredError, TimeoutError)


@attrs.define(eq=False)
class RestError(Mm2Error):
    """A request that is answered with an error status; `headers` are names and values, one after the other."""

    status: int
    message: str
    problems: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


def bad_request(*problems: str) -> RestError:
    """Refuse a request for all that is wrong with it."""
    return RestError(400, "; ".join(problems), problems if len(problems) > 1 else ())


def not_found(message: str, near: str | None = None) -> RestError:
    """Say that there is nothing of that name, and what it may have been meant to be."""
    return RestError(404, f"{message}; did you mean {near}?" if near else message)


def as_rest_error(error: BaseException) -> RestError | None:  # noqa: PLR0911 - one answer after the other
    """Return the answer that *error* means; None where it is a bug of ours."""
    if isinstance(error, RestError):
        return error
    if isinstance(error, web.HTTPException):
        return _of_http(error)
    if isinstance(error, _NOT_FOUND):
        return RestError(404, _told(error))
    if isinstance(error, OverrideRejectedError):
        return RestError(400, str(error), error.problems)
    if isinstance(error, ConfigError):
        return RestError(400, "; ".join(map(str, error.problems)), tuple(map(str, error.problems)))
    if isinstance(error, OverrideConflictError):
        return RestError(409, str(error))
    if isinstance(error, _AWAY):
        told = _told(error) if isinstance(error, Mm2Error) else "the cluster did not answer in time"
        return RestError(503, told, (), ("Retry-After", str(RETRY_AFTER_S)))
    return None


def _told(error: Mm2Error) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)


def _of_http(error: web.HTTPException) -> RestError:
    """Put aiohttp's own refusals (no such address, wrong method, body too large) in Connect's shape."""
    headers: tuple[str, ...] = ()
    message = f"HTTP {error.status} {error.reason}"
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        headers, message = ("Allow", allowed), f"HTTP 405 Method Not Allowed: {error.method}; allowed are {allowed}"
    elif isinstance(error, web.HTTPRequestEntityTooLarge):
        message = "the request's body is too large"
    return RestError(error.status, message, (), headers)


def error_body(error: RestError) -> dict[str, object]:
    """Return the body of an error answer: Connect's two fields, and all problems where there are several."""
    body: dict[str, object] = {"error_code": error.status, "message": error.message or reason(error.status)}
    if error.problems:
        body["problems"] = list(error.problems)
    return body


def reason(status: int) -> str:
    """Return HTTP's words for a status."""
    return http.HTTPStatus(status).phrase
