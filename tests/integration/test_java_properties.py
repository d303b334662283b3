"""The grammar of properties files is Java's own: the same reading of every generated file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from mm2py.config.properties import Document, parse_bytes
from tests.support.java_programs import java_program
from tests.support.soaking import rounds


#: Three times as many are compared.
_FILES = rounds(200, soak=2_000)

#: What files are made of: every sign that means something, broken escapes, and what people write.
_PIECES = st.sampled_from(
    [
        *" \t\f=:#!\\aZ0.,",
        "\n", "\r", "\r\n", "\\\n", "\\\r\n", "\\\r", "\\\\", "\\\\\n", "\n\n", "\n   ", "\n#", "\n !",
        "\\u0041", "\\u00e9", "\\ud83d\\ude00", "\\uD83D", "\\u004", "\\uzzzz", "\\u", "\\t", "\\n", "\\r", "\\f",
        "\\=", "\\:", "\\ ", "\\#", "\\d", "A->B.topics", "clusters = A, B", " = ", " // note", " # note", "é", "ÿ",
        "\x00",
    ]
)  # fmt: skip
_TEXTS = st.lists(_PIECES, max_size=24).map("".join)
_WILD = st.text(st.characters(max_codepoint=0xFF), max_size=40)
#: Java's reader of UTF-8 and ours agree on everything that can be written in UTF-8, save a byte order mark.
_WIDE = st.lists(st.one_of(_PIECES, st.sampled_from(["中", "😀", "\u2028", "\x85"])), max_size=24).map("".join)


def _generated() -> dict[str, bytes]:
    files: dict[str, bytes] = {}

    @settings(
        max_examples=_FILES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @example("a=1\\", "", "")
    @example("a\\\n\n=1", "", "")
    @example("\\\n#x=1", "", "")
    @given(_TEXTS, _WILD, _WIDE)
    def collect(text: str, wild: str, wide: str) -> None:
        number = len(files)
        # A byte beyond ASCII that is no UTF-8 keeps us from reading the file as such.
        files[f"latin-{number:05}"] = text.encode("iso-8859-1") + b"\n# \xff"
        files[f"wild-{number:05}"] = wild.encode("iso-8859-1") + b"\n# \xff"
        files[f"utf8-{number:05}"] = wide.encode()

    collect()
    return files


def _read_by_java(folder: Path) -> dict[str, dict[str, str] | None]:
    """Return each file's entries, or None where Java refuses the file."""
    read: dict[str, dict[str, str] | None] = {path.name: {} for path in folder.iterdir()}
    for line in java_program("PropertiesFiles").run(str(folder)):
        name, *pair = line.split("\t")
        entries = read[name]
        if pair == ["refused"] or entries is None:
            read[name] = None
        else:
            key, value = (_from_utf16(digits) for digits in pair)
            entries[key] = value
    return read


def _from_utf16(digits: str) -> str:
    # Half a character cannot be written in UTF-8; both readings show it as a replacement.
    return bytes.fromhex(digits).decode("utf-16-be", "replace")


def _entries(document: Document) -> dict[str, str] | None:
    return None if document.malformed else {key: entry.value for key, entry in document.latest().items()}


@pytest.mark.soak
def test_every_generated_file_reads_as_java_reads_it(tmp_path: Path) -> None:
    """Keys, values and refusals are those of java.util.Properties, in ISO-8859-1 and in UTF-8."""
    files = _generated()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    by_java = _read_by_java(tmp_path)
    different = {
        name: (content, by_java[name], ours)
        for name, content in files.items()
        if (ours := _entries(parse_bytes(content, name=name))) != by_java[name]
    }

    assert len(files) >= 3 * _FILES * 0.9
    assert 0 < sum(entries is None for entries in by_java.values()) < len(files) / 2
    assert different == {}
