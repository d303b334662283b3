"""The mirror in Go is built when it is needed, and not again."""

from pathlib import Path

import pytest

from bench import go
from tests.support.commands import fake_program


@pytest.fixture(name="sources")
def some_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources, an empty cache, and a Go command that writes its arguments into what it builds and into a list."""
    command = fake_program(tmp_path / "tools", "go", f'echo "$@" >> {tmp_path}/calls\necho "built in $PWD" > "$5"')
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setenv("MM2PY_CACHE", str(tmp_path / "cache"))
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "main.go").write_text("package main")
    return sources


def calls(sources: Path) -> int:
    return len((sources.parent / "calls").read_text().splitlines())


def test_it_is_built_once(sources: Path) -> None:
    """The second time it is in the cache already."""
    built = [go.binary(sources) for _ in range(2)]

    assert built[0] == built[1]
    assert built[0].read_text() == f"built in {sources}\n"
    assert calls(sources) == 1


def test_other_sources_are_built_again(sources: Path) -> None:
    """What is measured is what the sources say."""
    before = go.binary(sources)
    (sources / "main.go").write_text("package main // changed")

    assert go.binary(sources) != before
    assert calls(sources) == 2


def test_a_build_that_fails_says_why(sources: Path) -> None:
    """The compiler's own words are there, and nothing is left in the cache that could be run."""
    fake_program(sources.parent / "tools", "go", "echo undefined: kgo >&2\nexit 1")

    with pytest.raises(go.GoUnusableError, match="go build ended with 1\nundefined: kgo"):
        go.binary(sources)
    assert not list((sources.parent / "cache").glob("*[!k]"))


def test_without_go_it_is_said_what_to_do(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for on the PATH and where Go's archive puts it."""
    elsewhere = sources.parent / "tools/go"
    monkeypatch.setenv("PATH", str(sources))

    assert go.go_command(elsewhere) == str(elsewhere)
    with pytest.raises(go.GoUnusableError, match="install Go, or leave the candidate out"):
        go.go_command(sources / "go")
