"""Finding Java and Kafka's jars, and saying what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.devkit.jars import (
    JarsMissingError,
    JavaUnusableError,
    KafkaJars,
    cache_directory,
    java_command,
    kafka_jars,
)
from tests.support.commands import fake_program


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is searched for programs before the shell's own, without Java and Maven."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return programs


_JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""


def test_java_of_java_home_comes_first(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME wins over the PATH."""
    fake_program(path, "java", _JAVA_17)
    home = fake_program(tmp_path / "home/bin", "java", _JAVA_17)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    assert java_command() == str(home)


def test_no_java_says_how_to_get_it(path: Path) -> None:
    """Without Java the error names the package."""
    with pytest.raises(JavaUnusableError, match="apt-get install openjdk"):
        java_command()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("""echo 'java version "1.8.0_392"' >&2""", r"is Java 8\b"),
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", r"is Java 11\b"),
        ("echo I am coffee", "I am coffee"),
    ],
    ids=["Java 8", "Java 11", "no Java"],
)
def test_another_java_is_refused(path: Path, script: str, said: str) -> None:
    """Kafka needs Java 17; older ones are named, and of a program that tells no version what it said."""
    fake_program(path, "java", script)

    with pytest.raises(JavaUnusableError, match=said):
        java_command()


def test_cache_directory_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MM2PY_CACHE wins over XDG_CACHE_HOME, and that over the home folder; it may be a path from here."""
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("MM2PY_CACHE", raising=False)
    seen = [cache_directory()]
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    seen.append(cache_directory())
    monkeypatch.setenv("MM2PY_CACHE", "/own")
    seen.append(cache_directory())
    monkeypatch.setenv("MM2PY_CACHE", "own")
    seen.append(cache_directory())

    assert seen == [Path("/home/somebody/.cache/mm2py"), Path("/xdg/mm2py"), Path("/own"), Path.cwd() / "own"]


def test_no_maven_says_how_to_get_it(path: Path, tmp_path: Path) -> None:
    """Without Maven and without jars in the cache the error names the package."""
    with pytest.raises(JarsMissingError, match="apt-get install maven"):
        kafka_jars(tmp_path / "cache")


def test_maven_failure_shows_its_last_words(path: Path, tmp_path: Path) -> None:
    """When Maven fails, the error ends with what it printed, and nothing half done stays in the cache."""
    fake_program(path, "java", _JAVA_17)
    fake_program(path, "mvn", "echo 'could not resolve'; exit 3")
    cache = tmp_path / "cache"

    with pytest.raises(JarsMissingError, match=r"(?s)mvn ended with 3.*could not resolve"):
        kafka_jars(cache)

    assert [found.suffix for found in cache.iterdir()] == [".lock"]


def test_jars_are_got_once(path: Path, tmp_path: Path) -> None:
    """Maven runs for the first call only; the classpath is the folder that it filled."""
    fake_program(path, "java", _JAVA_17)
    fake_program(
        path,
        "mvn",
        f"echo ran >> {tmp_path}/runs\n"
        'for word in "$@"; do case $word in -DoutputDirectory=*) /bin/mkdir "${word#*=}";; esac; done',
    )

    first = kafka_jars(tmp_path / "cache")
    second = kafka_jars(tmp_path / "cache")

    assert first == second == KafkaJars(first.directory)
    assert first.directory.is_dir()
    assert first.classpath == f"{first.directory}/*"
    assert (tmp_path / "runs").read_text() == "ran\n"
