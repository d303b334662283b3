"""The Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar, Final

import attrs

from mm2py.errors import Mm2Error, Verdict


#: What Spark needs.
_OLDEST: Final = 17
_ANSWERS_WITHIN_S: Final = 10.0


@attrs.define(eq=False)
class JavaMissingError(Mm2Error):
    """Spark needs a Java runtime, and there is none, or one that is too old."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = "install a Java runtime 17 or later (Debian: apt-get install openjdk-17-jre-headless)"

    finding: str

    def __str__(self) -> str:
        return f"Spark needs Java, and {self.finding}"


def java() -> tuple[str, str]:
    """Return the command, and how to call it in a message."""
    java_home = os.environ.get("JAVA_HOME")
    command = str(Path(java_home, "bin", "java")) if java_home else "java"
    return command, f"{command} (JAVA_HOME is set)" if java_home else "java on the PATH"


def require_java() -> None:
    """Raise `JavaMissingError` if there is no Java."""
    command, in_words = java()
    if shutil.which(command) is None:
        raise JavaMissingError(f"there is no {in_words}")


def java_version() -> str:
    """Return the version of the Java that Spark would run on, as it names itself. Raise `JavaMissingError` if there is
    none, or if it is too old.
    """
    require_java()
    command, in_words = java()
    try:
        answer = subprocess.run(
            [command, "-version"], check=False, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(f"{in_words} cannot be used: {error}") from error
    words = answer.stderr + answer.stdout
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', words)
    if answer.returncode or found is None:
        raise JavaMissingError(f"{in_words} cannot be used: {words.strip()}")
    if int(found[2]) < _OLDEST:
        raise JavaMissingError(f"{in_words} is Java {found[2]}")
    return found[1]
