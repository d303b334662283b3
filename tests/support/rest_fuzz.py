"""Asking REST whatever its document allows, and more, and holding each answer against the document (schemathesis)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mm2py.rest.app import openapi
from tests.support.eventually import long_enough, scaled


_CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
#: It never ends by itself, a file is no JSON, and a drained node is not healthy for a while.
_LEFT_OUT = {"/stream", "/static/{name}", "/node/drain"}
_ANSWER_WITHIN_S = 30.0


def fuzz(
    url: str,
    names: Mapping[str, str],
    *,
    token: str = "",
    under: tuple[str, ...] = ("/",),
    examples: int = 8,
    within_s: float = 40.0,
) -> tuple[int, list[str]]:
    """
    Ask every address of the document *under* some; return how many requests were sent and what was wrong with answers.

    Half of the requests go to what *names* says is there, so that they get further than 404; it is removed last. After
    *within_s* the remaining addresses get one request each.
    """
    schema = schemathesis.openapi.from_dict(openapi())
    end = time.monotonic() + long_enough(within_s)
    sent, wrong = 0, []
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(case: Any, *, is_named: bool) -> None:
        nonlocal sent
        if is_named:
            case.path_parameters = {name: names[name] for name in case.path_parameters or {}}
        sent += 1
        response = case.call(base_url=url, headers=headers, timeout=scaled(_ANSWER_WITHIN_S))
        case.validate_response(response, checks=list(_CHECKS), headers=headers)

    def named(is_named: bool) -> Callable[[Any], None]:
        def one(case: Any) -> None:
            ask(case, is_named=is_named)

        return one

    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in sorted(operations, key=lambda it: it.method.upper() == "DELETE"):
        if operation.path in _LEFT_OUT or not operation.path.startswith(under):
            continue
        for is_named in (True, False):
            run = settings(
                max_examples=examples if time.monotonic() < end else 1,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )(given(case=operation.as_strategy())(named(is_named)))
            try:
                run()
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - whatever it is, it belongs in the list
                wrong.append(f"{operation.method.upper()} {operation.path}: {_told(error)}")
    return sent, wrong


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_told, error.exceptions))
    return f"{type(error).__name__}: {error}"[:2000]
