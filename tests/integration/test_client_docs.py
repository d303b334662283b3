"""docs/client.md: its examples run as they are written, against a mirror that Java MirrorMaker 2 made."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import scaled
from tests.support.java_mirror import JavaMirror


_PAGE = (Path(__file__).parents[2] / "docs/client.md").read_text()
_LIMIT_S = 60


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def mirror(mirror_by_java: JavaMirror) -> JavaMirror:
    return mirror_by_java


def _as_here(text: str, mirror: JavaMirror) -> str:
    """Put this mirror's names in the place of the page's."""
    names = {
        "a:9092": mirror.source,
        "b:9092": mirror.target,
        "mm2.properties": str(mirror.file),
        "A": mirror.source_alias,
        "B": mirror.target_alias,
        "billing": mirror.halfway,
        "bill": mirror.topic,
        "orders": mirror.topic,
    }
    pattern = "|".join(rf"\b{re.escape(name)}\b" for name in names)
    return re.sub(pattern, lambda found: names[found[0]], text)


@pytest.mark.parametrize("example", _blocks("python"), ids=lambda text: text.splitlines()[-3].strip()[:30])
def test_python_examples_run(example: str, mirror: JavaMirror) -> None:
    """Each example of the page is a whole program that ends with 0 and prints something."""
    program = _as_here(example, mirror)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        check=False, capture_output=True, text=True, timeout=scaled(_LIMIT_S),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "print(" not in program or done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("line", [line for block in _blocks("sh") for line in block.splitlines()])
def test_commands_run(line: str, mirror: JavaMirror) -> None:
    """Each command of the page ends well and prints lines."""
    _, *arguments = shlex.split(_as_here(line, mirror))
    done = subprocess.run(
        [sys.executable, "-m", "mm2py", *arguments],
        check=False, capture_output=True, text=True, timeout=scaled(_LIMIT_S),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_are_examples() -> None:
    """The page has programs and commands to run."""
    assert len(_blocks("python")) >= 4
    assert len(_blocks("sh")) >= 2
