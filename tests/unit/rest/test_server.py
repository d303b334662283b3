"""The REST server while it listens."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from itertools import chain, repeat
from pathlib import Path

import attrs
import pytest

from mm2py.telemetry.events import RestUnavailable
from mm2py.wire.security.contexts import SecuritySettingsError
from tests.support.clocks import ManualClock
from tests.support.rest_asking import asking


@attrs.define
class _EndingClock(ManualClock):
    """A clock that cancels whatever sleeps after a minute."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if self.now_s > 60:
            raise asyncio.CancelledError


async def test_a_key_store_that_could_not_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A store is replaced by one that may not be read; one event reports it. Then its permissions are corrected, which
    leaves size and time as they are: it is used, and not loaded again.
    """
    ask = asking(tmp_path, clock=_EndingClock())
    states, done = chain(["old"], repeat("replaced")), []

    def renew(_context: ssl.SSLContext, owner: str, _keys: Mapping[str, str]) -> None:
        done.append("refused" if len(done) < 3 else "used")
        if done[-1] == "refused":
            raise SecuritySettingsError(owner, "ssl.keystore.*", "Permission denied")

    monkeypatch.setattr("mm2py.rest.server.state_of_files", lambda _security: next(states))
    monkeypatch.setattr("mm2py.rest.server.renew_server_context", renew)
    with pytest.raises(asyncio.CancelledError):
        await ask.server._renew_forever(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    assert done == ["refused", "refused", "refused", "used"]
    assert len(ask.node.events.of(RestUnavailable)) == 1
