"""
Kafka's classes as Java has them once they are loaded, in a file that later starts map into memory (JEP 310, JEP 350).

A broker takes half the CPU time to start then. Java looks for itself whether the file fits its version and the jars;
where it does not, or there is none, it starts as ever.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.jars import java_command, kafka_jars, locked
from mm2py.devkit.java import JvmOptions
from mm2py.errors import Mm2Error


_WRITE_LIMIT_S = 120.0
#: What Java gives when it was asked to leave, by its own words or a shell's.
_GOOD_ENDS = (0, 143)


def make_class_archive() -> Path:
    """
    Return the file, which is made by a broker of its own where there is none yet; that takes some ten seconds.

    One that could not be made is an empty file, which Java passes over, so that it is not tried at every start.
    """
    archive = kafka_jars().class_archive(java_command())
    if not archive.exists():
        with locked(archive.with_suffix(".lock")):
            if not archive.exists():
                sys.stderr.write("Making an archive of Kafka's classes, once; brokers start faster with it.\n")
                _make(archive)
    return archive


def _make(archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    jvm = JvmOptions()
    jvm = JvmOptions(flags=(*jvm.flags, f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable"))
    exit_code = None
    with suppress(Mm2Error), KafkaCluster("classes", jvm=jvm) as cluster:
        exit_code = cluster.terminate(0, grace_s=_WRITE_LIMIT_S)
    # One that is cut off would make every JVM crash that maps it.
    if exit_code not in _GOOD_ENDS or not unfinished.exists():
        unfinished.write_bytes(b"")
    unfinished.rename(archive)
