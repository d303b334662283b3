"""Errors of REST: a status, and a message in the format of Connect's errors."""

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
    ConnectorsNotStoredError,
    Mm2Error,
    OverrideConflictError,
    OverrideRejectedError,
    OverridesNotStoredError,
    RestartNotPassedOnError,
    TopicsUnknownError,
    UnknownConnectorError,
    UnknownFlowError,
    UnknownTaskError,
)
from mm2py.policy.plugins import CustomClassError, PluginError


#: Retry-After when a cluster was unreachable.
RETRY_AFTER_S: Final = 5
_NOT_FOUND = (UnknownFlowError, UnknownConnectorError, UnknownTaskError)
_AWAY = (
    OverridesNotStoredError,
    ConnectorsNotStoredError,
    RestartNotPassedOnError,
    TopicsUnknownError,
    ClusterUnreachableError,
    BrokerConnectionError,
    BrokerAnsweredError,
    TimeoutError,
)


@attrs.define(eq=False)
class RestError(Mm2Error):
    """A request that is answered with an error status; `headers` are alternating names and values."""

    status: int
    message: str
    problems: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


def bad_request(*problems: str) -> RestError:
    """Refuse a request with all of its problems."""
    return RestError(400, "; ".join(problems), problems if len(problems) > 1 else ())


def not_found(message: str, near: str | None = None) -> RestError:
    """Return the error for an unknown name, with a similar one as a suggestion."""
    return RestError(404, f"{message}; did you mean {near}?" if near else message)


def as_rest_error(error: BaseException) -> RestError | None:  # noqa: PLR0911 - one answer after the other
    """Return the answer for *error*; None if it is a bug of ours."""
    if isinstance(error, RestError):
        return error
    if isinstance(error, web.HTTPException):
        return _of_http(error)
    if isinstance(error, _NOT_FOUND):
        return RestError(404, _with_hint(error))
    if isinstance(error, OverrideRejectedError):
        return RestError(400, str(error), error.problems)
    if isinstance(error, ConfigError):
        return RestError(400, "; ".join(map(str, error.problems)), tuple(map(str, error.problems)))
    if isinstance(error, OverrideConflictError):
        return RestError(409, str(error))
    if isinstance(error, PluginError | CustomClassError):
        return RestError(500, _with_hint(error))
    if isinstance(error, _AWAY):
        message = _with_hint(error) if isinstance(error, Mm2Error) else "the cluster did not respond in time"
        return RestError(503, message, (), ("Retry-After", str(RETRY_AFTER_S)))
    return None


def _with_hint(error: Mm2Error) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)


def _of_http(error: web.HTTPException) -> RestError:
    """Convert aiohttp's own errors (unknown path, wrong method, body too large) to Connect's format."""
    headers: tuple[str, ...] = ()
    message = f"HTTP {error.status} {error.reason}"
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        headers, message = ("Allow", allowed), f"HTTP 405 Method Not Allowed: {error.method}; allowed are {allowed}"
    elif isinstance(error, web.HTTPRequestEntityTooLarge):
        message = "the request's body is too large"
    return RestError(error.status, message, (), headers)


def error_body(error: RestError) -> dict[str, object]:
    """Return the body of an error answer: Connect's two fields, and the problems if there are several."""
    body: dict[str, object] = {"error_code": error.status, "message": error.message or reason(error.status)}
    if error.problems:
        body["problems"] = list(error.problems)
    return body


def reason(status: int) -> str:
    """Return the reason phrase of a status."""
    return http.HTTPStatus(status).phrase
