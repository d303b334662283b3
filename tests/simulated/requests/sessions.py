"""What a client asks first: which versions are spoken, and for SASL, which a plain port refuses."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.admin import ApiVersionRequest_v0, SaslHandShakeRequest_v1

from mm2py.wire.error_codes import ErrorCode
from tests.simulated.requests.kind import Kind


#: Versions that the model understands, by API key; filled by the package once it knows all kinds.
spoken: dict[int, tuple[int, int]] = {}


def _versions(_broker: object, _line: object, it: Any, _reply: object) -> Any:
    return it.RESPONSE_TYPE(0, [(key, *versions) for key, versions in spoken.items()])


def _handshake(_broker: object, _line: object, it: Any, _reply: object) -> Any:
    return it.RESPONSE_TYPE(int(ErrorCode.ILLEGAL_SASL_STATE), [])


KINDS = (Kind(_versions, (ApiVersionRequest_v0,)), Kind(_handshake, (SaslHandShakeRequest_v1,)))
