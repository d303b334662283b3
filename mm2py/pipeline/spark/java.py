"""The Java that Spark runs on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import ClassVar

import attrs

from mm2py.errors import Mm2Error, Verdict


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
