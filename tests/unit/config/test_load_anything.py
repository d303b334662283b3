"""Whatever a file says, loading it gives settings or all its problems: no crash, no hang, no secret in a message."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.config.keys.table import KEYS
from mm2py.config.render import explain
from mm2py.config.settings import ConfigError, load_settings


_PREFIXES = st.sampled_from(
    [
        "", "A.", "B.", "C.", "A->B.", "B->A.", "A->A.", "A->C.", "A->B.source.", "A->B.target.",
        "A->B.producer.override.", "A.consumer.", "B.producer.", "A.admin.", "cluster.A.", "connector.A->B.", "->",
        "A->", ".", "config.providers.",
    ]
)  # fmt: skip
_NAMES = st.sampled_from([*sorted({key.full_name.replace("*", "x") for key in KEYS}), "", "x", "topic", "brokers.list"])
_VALUES = st.sampled_from(
    [
        "", " ", "true", "false ", "1", "-1", "0", "99999999999999999999", "a, b", "a,,b", ".*", "(", "x{1,3}", "*",
        "SSL", "PLAINTEXT", "host:1", "host", "[::1]:9", "x # y", "x // y", "${env:HOME}", "${file:/none:x}", "${",
        "A, B", "identity", "no.such.Class", "earliest", "source", "file, env", "\\u00e9", "\\", "\\x",
    ]
)  # fmt: skip
_LINE = st.tuples(_PREFIXES, _NAMES, st.one_of(_VALUES, st.text(max_size=12)))
_LINES = st.lists(_LINE.map(lambda parts: f"{parts[0]}{parts[1]} = {parts[2]}"), max_size=12)
_START = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
_SECRET = "A.sasl.jaas.config = hush-hush\nB.ssl.key.password = hush-hush\n"


@given(st.sampled_from(["", _START, _START + _SECRET]), _LINES, st.binary(max_size=20))
@settings(max_examples=150, deadline=None)
def test_any_file_is_settings_or_problems(start: str, lines: list[str], tail: bytes) -> None:
    """Each problem and each note says something, and no password is in any of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mm2.properties"
        path.write_bytes((start + "\n".join(lines)).encode("utf-8", "replace") + tail)
        try:
            loaded = load_settings(path)
        except ConfigError as error:
            said = [str(problem) for problem in error.problems]
            assert said
        else:
            rows = [row for flow in loaded.flows for row in explain(loaded, flow.flow)]
            said = [*map(str, loaded.notes), *(row.value for row in rows)]

    assert not any("hush-hush" in text for text in said)
