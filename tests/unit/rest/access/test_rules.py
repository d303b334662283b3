"""Whether a request is meant for us, which page made it, and what it shows of who asks."""

from __future__ import annotations

import base64

import pytest

from mm2py.config.rest import Listener, RestSettings, Right
from mm2py.rest.access.rules import (
    BearerToken,
    MalformedCredentials,
    Password,
    Shown,
    credentials,
    judge_host,
    judge_origin,
    why_not,
)


LOOPBACK, ANYWHERE = Listener("http", "127.0.0.1", 8083), Listener("http", "", 8083)
PLAIN = RestSettings()


def _basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", None),
        ("Bearer abc", BearerToken("abc")),
        ("bearer  abc ", BearerToken("abc")),
        (_basic("ann:a:b"), Password("ann", "a:b")),
        (_basic("ånn:pässword"), Password("ånn", "pässword")),
    ],
)
def test_who_asks_is_read(header: str, found: object) -> None:
    """Tokens and passwords are read as their RFCs say; a password may hold colons and letters of any language."""
    assert credentials(Shown("GET", authorization=header)) == found


@pytest.mark.parametrize("header", ["Basic !!", "Digest abc", _basic("no colon"), "Bearer", "Basic " + "w" * 5])
def test_a_malformed_header_is_refused(header: str) -> None:
    """A header that is neither Basic nor Bearer is malformed, which is not the same as no header."""
    assert isinstance(credentials(Shown("GET", authorization=header)), MalformedCredentials)


def test_secrets_are_not_shown() -> None:
    """Neither a token nor a password is in what is printed of a request."""
    shown = Shown("GET", authorization=_basic("ann:hunter-2"))

    assert "hunter-2" not in repr(credentials(shown))
    assert shown.authorization not in repr(shown)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8083", "LOCALHOST:1", "127.0.0.1:8083", "[::1]:8083", "127.0.0.9"]
)
def test_loopback_answers_to_its_own_names(host: str) -> None:
    """A request to a loopback listener is for this machine."""
    assert judge_host(host, LOOPBACK, PLAIN) == ""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8083", "10.0.0.1", "", "localhost.evil.example", "[::"])
def test_another_name_that_leads_to_loopback_is_a_trick(host: str) -> None:
    """A page whose name was made to point at this machine is refused (DNS rebinding), and the way out is named."""
    assert "rest.advertised.host.name" in judge_host(host, LOOPBACK, PLAIN)


def test_the_advertised_name_is_ours() -> None:
    """A proxy on this machine passes on the advertised name, which its clients use."""
    settings = RestSettings(advertised_host="mirror.example")

    assert judge_host("mirror.example", LOOPBACK, settings) == ""
    assert judge_host("evil.example", ANYWHERE, PLAIN) == ""


@pytest.mark.parametrize(
    "shown",
    [
        Shown("PUT", "localhost:8083"),
        Shown("PUT", "localhost:8083", origin="http://localhost:8083", fetch_site="same-origin"),
        Shown("PUT", "mirror.example", origin="https://mirror.example", fetch_site="same-origin"),
        Shown("PUT", "localhost:8083", fetch_site="none"),
        Shown("GET", "localhost:8083", origin="https://evil.example", fetch_site="cross-site"),
    ],
)
def test_programs_and_our_own_page_may_change_things(shown: Shown) -> None:
    """Without an origin it is no page's request, with our own it is our page's; reading gives a page nothing."""
    assert judge_origin(shown, PLAIN) == ""


@pytest.mark.parametrize(
    "shown",
    [
        Shown("PUT", "localhost:8083", origin="https://evil.example"),
        Shown("POST", "localhost:8083", origin="null"),
        Shown("DELETE", "localhost:8083", origin="http://localhost:8084"),
        Shown("DELETE", "localhost:8083", fetch_site="cross-site"),
        Shown("PATCH", "localhost:8083", fetch_site="same-site"),
        Shown("PUT", "localhost:8083", origin="http://["),
    ],
)
def test_other_pages_may_not(shown: Shown) -> None:
    """Another page in a user's browser must not change the mirror with the user's rights."""
    assert judge_origin(shown, PLAIN) != ""


def test_an_origin_may_be_let_in() -> None:
    """Origins of the settings may do what the methods of the settings say, and no more."""
    settings = RestSettings(allow_origins=("https://dash.example",), allow_methods=("GET", "PUT"))

    assert judge_origin(Shown("PUT", "h", origin="https://dash.example"), settings) == ""
    assert judge_origin(Shown("DELETE", "h", origin="https://dash.example"), settings) != ""
    assert judge_origin(Shown("PUT", "h", origin="https://evil.example"), settings) != ""


def test_refusals_name_the_way_out() -> None:
    """Who may not is told which setting says so."""
    guarded = RestSettings(users_file="/etc/users")

    assert "rest.auth.users.file" in why_not(Right.READ, ANYWHERE, PLAIN, is_known=False)
    assert "rest.auth.users.file" in why_not(Right.READ, LOOPBACK, guarded, is_known=True)
    assert "log in" in why_not(Right.NONE, LOOPBACK, guarded, is_known=False)
