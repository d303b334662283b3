"""What a running daemon takes of its machine, seen from outside: memory, threads, files, and what Spark keeps."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import attrs
import psutil

from tests.support.daemon import process_tree


_PROC = Path("/proc")
_MIB = 1024 * 1024
_JCMD_LIMIT_S = 60.0
_CLEANED_WITHIN_S = 1.0
#: ``   1:        123456       23456789  java.lang.String (java.base@17)``
_CLASS = re.compile(r"^\s*\d+:\s+(?P<count>\d+)\s+(?P<size>\d+)\s+(?P<name>\S+)")
#: The parts of the heap, as `GC.heap_info` shows them: ``[0x00000000e0000000, 0x...)``.
_SPACE = re.compile(r"\[0x([0-9a-f]+),.*0x([0-9a-f]+)\)")
#: The collector fills with it what it leaves empty, up to 5 MiB.
_FILLER = "[I"
_METASPACE = re.compile(r"Metaspace\s+used (\d+)K")
_MAPPING = re.compile(r"^([0-9a-f]+)-[0-9a-f]+ ")

#: What Spark and py4j keep, by the ends of their classes' names.
_STORES = {
    "jobs": r"spark\.status\.(JobDataWrapper|LiveJob)",
    "stages": r"spark\.status\.(StageDataWrapper|LiveStage|RDDOperationGraphWrapper|PoolData)",
    "tasks": r"spark\.status\.(TaskDataWrapper|LiveTask)",
    "executions": r"spark\.sql\.execution\.ui\.(SQLExecutionUIData|LiveExecutionData|SparkPlanGraphWrapper)",
    "scheduler": r"spark\.scheduler\.(ActiveJob|ResultStage|ShuffleMapStage|TaskSetManager|Pool)",
    "rdds": r"spark\.(rdd|api\.python|sql\.execution\.\w+)\.\w*RDD",
    "broadcasts": r"spark\.broadcast\.TorrentBroadcast",
    "blocks": r"spark\.storage\.(BlockInfo|memory\.\w*MemoryEntry)",
    "references to clean": r"spark\.CleanupTaskWeakReference",
    "accumulators": r"spark\.util\.(Long|Double|Collection)Accumulator|spark\.sql\.execution\.metric\.SQLMetric",
    "py4j connections": r"py4j\.(GatewayConnection|ClientServerConnection|CallbackConnection)",
}


@attrs.frozen
class Footprint:
    """One sample. Memory is in MiB; `stores` are numbers of objects, and `classes` all of them, by class."""

    memory: Mapping[str, float]
    counts: Mapping[str, float]
    stores: Mapping[str, float]
    #: Of both kinds of processes: what was started again starts at another level.
    lives: Mapping[str, str]
    classes: Mapping[str, int] = attrs.field(repr=False)
    #: For information: it depends on when the collector was last at work.
    resident: Mapping[str, float]


def footprint(pid: int, scratch: Path) -> Footprint:
    """Look at a daemon and all below it, after a full collection in its JVM; *scratch* is its folder for files."""
    below = [it for it in process_tree(pid)[1:] if it.is_running()]
    (java,) = [it for it in below if _name(it) == "java"]
    pythons = [it for it in below if _name(it).startswith("python")]
    classes, heap_bytes = histogram(java.pid)
    info = _jcmd(java.pid, "GC.heap_info")
    spaces = [tuple(int(end, 16) for end in found) for found in _SPACE.findall(info.split("Metaspace")[0])]
    heap = (min(low for low, _ in spaces), max(high for _, high in spaces))
    (metaspace,) = _METASPACE.findall(info)
    files = list(_files(scratch))
    memory = {
        "daemon": _anonymous(pid),
        "workers": sum(_anonymous(it.pid) for it in pythons),
        "JVM heap": heap_bytes / _MIB,
        "JVM outside its heap": outside(java.pid, *heap),
    }
    counts = {
        "files": len(files),
        "MiB in files": sum(files) / _MIB,
        **{
            f"threads, {name}": float(it.num_threads()) for name, it in (("daemon", psutil.Process(pid)), ("JVM", java))
        },
        "threads, workers": float(sum(it.num_threads() for it in pythons)),
        "descriptors, daemon": _descriptors(pid),
        "descriptors, JVM": _descriptors(java.pid),
        "descriptors, workers": sum(_descriptors(it.pid) for it in pythons),
        "processes": float(len(below)),
    }
    stores = {
        name: float(sum(classes[it] for it in classes if re.search(f"{end}$", it))) for name, end in _STORES.items()
    }
    return Footprint(
        memory,
        counts,
        stores,
        {"workers": " ".join(str(it.pid) for it in pythons), "JVM": str(java.pid)},
        classes,
        {"JVM, resident": java.memory_info().rss / _MIB, "metaspace": int(metaspace) / 1024},
    )


def histogram(java: int) -> tuple[dict[str, int], int]:
    """Collect all garbage of a JVM; return how many objects of each class are left, and the bytes of all."""
    # Spark lets go of more once it has seen what was collected.
    _jcmd(java, "GC.run")
    time.sleep(_CLEANED_WITHIN_S)
    classes: dict[str, int] = {}
    total = 0
    for line in _jcmd(java, "GC.class_histogram").splitlines():
        found = _CLASS.match(line)
        if found is not None:
            # What is made up at run time has a number that changes.
            name = re.sub(r"(\$\$Lambda)?(\$|/0x|\+0x)[0-9a-fx]{3,}.*", "", found["name"])
            classes[name] = classes.get(name, 0) + int(found["count"])
            total += 0 if found["name"] == _FILLER else int(found["size"])
    return classes, total


def outside(java: int, low: int, high: int) -> float:
    """Return the MiB of a JVM's own memory that are not its heap: metaspace, code, stacks, malloc."""
    kib, is_heap = 0, False
    for line in (_PROC / str(java) / "smaps").read_text().splitlines():
        found = _MAPPING.match(line)
        if found is not None:
            is_heap = low <= int(found[1], 16) < high
        elif line.startswith("Anonymous:") and not is_heap:
            kib += int(line.split()[1])
    return kib / 1024


def _anonymous(pid: int) -> float:
    """Return the MiB of a process's own memory, with its share of what forked processes have in common."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _descriptors(pid: int) -> float:
    with suppress(FileNotFoundError):
        return float(len(os.listdir(_PROC / str(pid) / "fd")))  # noqa: PTH208
    return 0.0


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def _files(folder: Path) -> Iterator[int]:
    """Return the sizes of all files in *folder*."""
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield Path(place, name).lstat().st_size


def _jcmd(pid: int, *words: str) -> str:
    done = subprocess.run(["jcmd", str(pid), *words], capture_output=True, text=True, timeout=_JCMD_LIMIT_S, check=True)
    return done.stdout
