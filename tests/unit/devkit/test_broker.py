"""What a broker is started with."""

from __future__ import annotations

from mm2py.config.properties import parse_text
from mm2py.devkit import broker


def test_a_cache_below_any_home_is_found() -> None:
    """Java takes what is not ASCII in a properties file for ISO-8859-1, and would make a folder of another name."""
    settings = {"log.dirs": "/home/Zoë Łuczak 🦆/.cache", "sasl.jaas.config": 'user="a\\b";'}

    text = broker._properties_text(settings)

    assert text.isascii()
    assert {entry.key: entry.value for entry in parse_text(text, name="server.properties").entries} == settings
