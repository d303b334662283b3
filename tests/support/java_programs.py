"""
Small Java programs that ask Kafka's own classes: compiled once against MirrorMaker 2's jars, run as often as wanted.

The sources lie in tests/support/java, one class in each file, in no package. What is compiled goes into the cache of
Kafka's jars, under a name that follows from the source and the jars, so that a changed source is compiled again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import attrs

from mm2py.devkit.jars import JavaUnusableError, KafkaJars, cache_directory, java_command, kafka_jars
from tests.support.eventually import scaled


SOURCES = Path(__file__).parent / "java"

_COMPILE_LIMIT_S = 120.0
_RUN_LIMIT_S = 90.0
_QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaProgramFailedError(AssertionError):
    """A Java program was refused by the compiler, or ended with an error; its words are in the message."""


@attrs.frozen
class JavaProgram:
    """A compiled program."""

    main_class: str
    classpath: str

    def run(self, *arguments: str, within_s: float = _RUN_LIMIT_S) -> list[str]:
        """Run it to its end and return the lines it printed. Blocking."""
        command = [java_command(), "-Xmx128m", *_QUIET, "-cp", self.classpath, self.main_class, *arguments]
        return _run(command, self.main_class, within_s).splitlines()

    async def ask(self, *arguments: str, within_s: float = _RUN_LIMIT_S) -> list[str]:
        """Run it to its end in a thread and return the lines it printed."""
        return await asyncio.to_thread(self.run, *arguments, within_s=within_s)


def java_program(main_class: str, *, sources: Path = SOURCES, jars: KafkaJars | None = None) -> JavaProgram:
    """
    Return the program of that name, compiled where it has not been yet, with Kafka's jars or those that are given.

    Blocking; tests may do so side by side.
    """
    source = sources / f"{main_class}.java"
    jars = jars or kafka_jars()
    digest = hashlib.sha256(source.read_bytes() + jars.directory.name.encode()).hexdigest()[:12]
    classes = cache_directory() / "java-programs" / f"{main_class}-{digest}"
    if not classes.is_dir():
        _compile(source, jars.classpath, classes)
    return JavaProgram(main_class, f"{classes}{os.pathsep}{jars.classpath}")


def _compile(source: Path, classpath: str, classes: Path) -> None:
    classes.parent.mkdir(parents=True, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="compiling-", dir=classes.parent)
    try:
        command = [_compiler(), "-nowarn", "-proc:none", "-cp", classpath, "-d", scratch, str(source)]
        _run(command, source.name, _COMPILE_LIMIT_S)
        try:
            Path(scratch).rename(classes)
        except OSError:
            if not classes.is_dir():  # else another process compiled the same meanwhile
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _compiler() -> str:
    """Find the compiler that belongs to the Java in use, else any on the PATH."""
    beside = Path(java_command()).resolve().with_name("javac")
    found = str(beside) if beside.exists() else shutil.which("javac")
    if found is None:
        raise JavaUnusableError("no javac: these tests need a JDK, for example openjdk-17-jdk-headless")
    return found


def _run(command: list[str], name: str, within_s: float) -> str:
    done = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=scaled(within_s),
    )
    if done.returncode != 0:
        message = f"{name} ended with {done.returncode}:\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
        raise JavaProgramFailedError(message)
    return done.stdout
