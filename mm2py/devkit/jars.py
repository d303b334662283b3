"""
Kafka's jars and the Java to run them.

Maven copies the brokers', the tools' and Java MirrorMaker 2's jars into a cache folder outside any checkout, once per
Kafka version and list of artifacts. Runs side by side wait for each other at a lock file; a folder appears under its
final name only when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import attrs

from mm2py.errors import Mm2Error


KAFKA_VERSION = "4.3.1"
OLDEST_JAVA = 17

#: Group, name and version, as Maven has them.
Artifact = tuple[str, str, str]

_KAFKA_ARTIFACTS = ("kafka_2.13", "kafka-tools", "connect-mirror", "connect-runtime")
#: Kafka's artifacts bring no logger of their own; this one needs no configuration file.
_LOGGER = ("org.slf4j", "slf4j-simple", "1.7.36")
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MAVEN_LIMIT_S = 900.0
_TAIL_LINES = 25


@attrs.define(eq=False)
class JavaUnusableError(Mm2Error):
    """There is no Java, or one that is too old for Kafka."""

    hint: ClassVar[str] = (
        f"install Java {OLDEST_JAVA} or newer, for example: apt-get install openjdk-{OLDEST_JAVA}-jre-headless; "
        "or point JAVA_HOME at one"
    )

    detail: str

    def __str__(self) -> str:
        return f"no usable Java: {self.detail}; {self.hint}"


@attrs.define(eq=False)
class JarsMissingError(Mm2Error):
    """Kafka's jars are not in the cache and could not be got."""

    hint: ClassVar[str] = "Maven gets them from Maven Central; it is installed with: apt-get install maven"

    directory: str
    detail: str
    output: str = ""

    def __str__(self) -> str:
        tail = f"\n{self.output}" if self.output else ""
        return f"cannot get Kafka's jars into {self.directory}: {self.detail}; {self.hint}{tail}"


@attrs.frozen
class KafkaJars:
    """A folder with every jar that a broker, Kafka's tools and Java MirrorMaker 2 need."""

    directory: Path

    @property
    def classpath(self) -> str:
        """What ``java -cp`` takes."""
        return f"{self.directory}/*"

    def class_archive(self, java: str) -> Path:
        """Return where `mm2py.devkit.class_archive` puts these jars' classes for the command *java*."""
        program = Path(java).resolve()
        made = program.stat()
        digest = hashlib.sha256(f"{program} {made.st_mtime_ns} {made.st_size}".encode()).hexdigest()[:8]
        return self.directory.with_name(f"{self.directory.name}-{digest}.jsa")


def java_command() -> str:
    """Return the path of a Java that is new enough, the one of JAVA_HOME first."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise JavaUnusableError(f"JAVA_HOME={home} has no bin/java" if home else "java is not on the PATH")
    answer = subprocess.run([java, "-version"], check=False, capture_output=True, text=True)
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None:
        raise JavaUnusableError(f"{java} -version says: {(answer.stderr or answer.stdout).strip()}")
    if int(version[1]) < OLDEST_JAVA:
        raise JavaUnusableError(f"{java} is Java {version[1]}")
    return java


def cache_directory() -> Path:
    """Return the folder for what is downloaded: $MM2PY_CACHE, else mm2py in the user's cache folder."""
    own = os.environ.get("MM2PY_CACHE")
    if own:
        return Path(own).absolute()  # brokers run in folders of their own
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mm2py"


def kafka_jars(cache: Path | None = None) -> KafkaJars:
    """Find the jars in the cache, or let Maven put them there."""
    return jars_of(KAFKA_VERSION, [("org.apache.kafka", name, KAFKA_VERSION) for name in _KAFKA_ARTIFACTS], cache)


def jars_of(version: str, artifacts: Iterable[Artifact], cache: Path | None = None) -> KafkaJars:
    """Do so with the *artifacts* of any version of Kafka, and what they need."""
    cache = cache or cache_directory()
    pom = _pom((*artifacts, _LOGGER))
    digest = hashlib.sha256(pom.encode()).hexdigest()[:8]
    jars = cache / f"kafka-{version}-{digest}"
    if not jars.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f"{jars.name}.lock"):
            if not jars.is_dir():
                _download(pom, jars)
    return KafkaJars(jars)


def _pom(artifacts: Iterable[Artifact]) -> str:
    dependencies = "".join(
        "    <dependency>"
        f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "</dependency>\n"
        for group, name, version in artifacts
    )
    return (
        "<project>\n"
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>mm2py</groupId>\n"
        "  <artifactId>kafka-for-tests</artifactId>\n"
        "  <version>1</version>\n"
        f"  <dependencies>\n{dependencies}  </dependencies>\n"
        "</project>\n"
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file *path*; blocks while another process does."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(pom: str, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissingError(str(jars), "mvn is not on the PATH")
    java_command()
    with tempfile.TemporaryDirectory(prefix="downloading-", dir=jars.parent) as scratch:
        project = Path(scratch)
        (project / "pom.xml").write_text(pom)
        copied = project / "jars"
        command = [maven, "-B", "-q", _COPY_GOAL, f"-DoutputDirectory={copied}", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(
                command,
                check=False,
                cwd=project,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_MAVEN_LIMIT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise JarsMissingError(str(jars), f"mvn took longer than {_MAVEN_LIMIT_S:g} s") from error
        if done.returncode != 0:
            tail = "\n".join(done.stdout.splitlines()[-_TAIL_LINES:])
            raise JarsMissingError(str(jars), f"mvn ended with {done.returncode}", tail)
        copied.rename(jars)
