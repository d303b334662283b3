"""How a Java program of Kafka's is run: its virtual machine's flags, its command line, and one-off tools."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import ClassVar

import attrs

from mm2py.devkit.jars import java_command, kafka_jars
from mm2py.errors import Mm2Error


_TOOL_TAIL_CHARACTERS = 4_000
_LOGGER_FLAGS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    # These two print every setting and every plugin at every start, thousands of lines.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.connect.runtime.isolation=warn",
)

_USES_ARCHIVE = "-Xshare:auto"


@attrs.frozen
class JvmOptions:
    """
    Flags of a Java virtual machine.

    The default suits tests on small machines: it starts fast and takes little, and gives up peak speed for that.
    """

    heap_mb: int = 384
    flags: tuple[str, ...] = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", _USES_ARCHIVE)

    def command(self, main_class: str, *arguments: str, scratch: Path | None = None) -> list[str]:
        """Return the whole command line for *main_class*; native libraries are unpacked into *scratch*."""
        jars, java = kafka_jars(), java_command()
        return [
            java,
            f"-Xmx{self.heap_mb}m",
            *self.flags,
            *(_from_archive(jars.class_archive(java)) if _USES_ARCHIVE in self.flags else ()),
            *_LOGGER_FLAGS,
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            *([f"-Djava.io.tmpdir={scratch}"] if scratch else []),
            "-cp",
            jars.classpath,
            main_class,
            *arguments,
        ]


def _from_archive(archive: Path) -> tuple[str, ...]:
    """Use the class archive if there is one; if it does not fit, Java starts without it and without a word."""
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if archive.exists() else ()


#: What Kafka's own start scripts give a broker or a MirrorMaker 2, apart from the heap. For measurements.
SERVER_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


@attrs.define(eq=False)
class ToolFailedError(Mm2Error):
    """One of Kafka's command line tools ended with an error."""

    hint: ClassVar[str] = "the tool's own words are above"

    tool: str
    exit_code: int
    output: str

    def __str__(self) -> str:
        return f"{self.tool} ended with {self.exit_code}:\n{self.output[-_TOOL_TAIL_CHARACTERS:]}"


def run_tool(main_class: str, *arguments: str, within_s: float = 60.0) -> str:
    """Run one of Kafka's tools to its end and give what it printed."""
    done = subprocess.run(
        JvmOptions(heap_mb=128).command(main_class, *arguments),
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=within_s,
    )
    if done.returncode != 0:
        raise ToolFailedError(main_class, done.returncode, done.stdout)
    return done.stdout
