"""References to values from elsewhere mean what Kafka's own providers make of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mm2py.config.layers import Layers, lines_of
from mm2py.config.properties import Document, Entry
from mm2py.config.providers import Machine
from mm2py.config.references import resolve_references
from tests.support.java_programs import java_program


_REFUSED = "refused"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make files to refer to, inside and outside of what may be read."""
    allowed = tmp_path / "allowed"
    (allowed / "sub").mkdir(parents=True)
    (allowed / "s.properties").write_text("plain = one\na\\:b = two\nref = ${file:x:y}\nempty =\n")
    (allowed / "token").write_text("three\n")
    (allowed / "sub" / "inner").write_text("four")
    (tmp_path / "outside.properties").write_text("plain = five\n")
    return tmp_path


def _references(folder: Path) -> list[str]:
    inside = folder / "allowed"
    files = [f"{inside}/s.properties", f"{folder}/outside.properties", f"{inside}/../outside.properties", "", "/none"]
    keys = ["plain", "a:b", "ref", "empty", "none", ""]
    of_files = [f"${{file:{path}:{key}}}" for path, key in itertools.product(files, keys)]
    folders = [f"{inside}", f"{inside}/", f"{folder}", f"{inside}/sub", "/none"]
    of_folders = [f"${{dir:{path}:{name}}}" for path in folders for name in ("token", "inner", "sub/inner", "none")]
    of_variables = ["${env:MM2PY_ONE}", "${env:PATH}", "${env:MM2PY_NONE}", "${env:p:MM2PY_ONE}", "${env::MM2PY_ONE}"]
    others = ["${file:plain}", "${dir:token}", "${vault:a:b}", "${}", "${:}", "${a}", "$", "${file", "{file:a:b}"]
    return [*of_files, *of_folders, *of_variables, *others]


def _ours(value: str, allowed: Path) -> str:
    lines = {
        "config.providers": "file, dir, env",
        "config.providers.file.param.allowed.paths": str(allowed),
        "config.providers.dir.param.allowed.paths": str(allowed),
        "config.providers.env.param.allowlist.pattern": "MM2PY.*",
        "key": value,
    }
    document = Document("f", tuple(Entry(key, text, number) for number, (key, text) in enumerate(lines.items())))
    resolved = resolve_references(Layers(lines_of(document), {}), Machine())
    found = resolved.layers.get("key")
    assert found is not None
    return _REFUSED if resolved.problems else found.text.replace("\n", "\\n")


def test_references_give_what_kafka_s_providers_give(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values; where Java leaves a reference to a known provider as it is, or fails, we refuse the line."""
    monkeypatch.setenv("MM2PY_ONE", "six")
    single = _references(folder)
    values = [*single, *(f"x{one}-{other}y" for one, other in zip(single, reversed(single), strict=True))]
    (folder / "values").write_text("\n".join(values))
    java = java_program("References").run(str(folder / "values"), str(folder / "allowed"))

    replaced = 0
    for value, theirs in zip(values, java, strict=True):
        ours = _ours(value, folder / "allowed")
        replaced += ours not in {_REFUSED, value}
        is_left = theirs == _REFUSED or any(f"${{{name}:" in theirs for name in ("file", "dir", "env"))
        # A value that itself looks like a reference is not resolved again, by either.
        assert ours == theirs or (ours == _REFUSED and is_left), value
    assert replaced > 10
