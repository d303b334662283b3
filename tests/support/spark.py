"""A Spark standalone cluster from pyspark's own files: one master and two workers on the loopback address."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from mm2py.devkit import leash
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import LoggedProcess, start_process
from tests.support.daemon import spark_workers
from tests.support.eventually import scaled


_START_LIMIT_S = 60.0
_POLL_S = 0.1
#: Flags of virtual machines that live for seconds.
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@attrs.frozen
class SparkCluster:
    """A running standalone cluster. `master` is what ``spark.master`` takes."""

    master: str
    workers: tuple[LoggedProcess, ...]

    def settings(self, *, python: Path | str = sys.executable) -> dict[str, str]:
        """Return what a driver on this machine has to set, with the Python that the executors are to run."""
        return {
            "spark.master": self.master,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.pyspark.python": str(python),
            "spark.executor.extraJavaOptions": _QUICK,
        }

    def python_workers(self) -> list[int]:
        """Return the process ids of the Python workers on the executors."""
        return sorted(pid for worker in self.workers for pid in spark_workers(worker.pid))

    def seen_in(self, folder: Path) -> list[list[str]]:
        """Return what lies in *folder* for each Spark worker."""
        views = (Path(f"/proc/{worker.pid}/root", folder.relative_to("/")) for worker in self.workers)
        return [sorted(entry.name for entry in view.iterdir()) for view in views]

    def worker_of(self, pid: int) -> int | None:
        """Return which Spark worker a Python worker belongs to, by the Spark worker's place in `workers`."""
        owners = (place for place, worker in enumerate(self.workers) if pid in spark_workers(worker.pid))
        return next(owners, None)


def python_without_mm2py(work_dir: Path) -> Path:
    """
    Make a Python environment with all that is installed here except mm2py, as an executor's machine has it.

    Packages are links to ours. Files that add to the import path are left out, and with them an editable install.
    """
    home = work_dir / "executor-python"
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    ours = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    for package in (entry for folder in ours for entry in folder.iterdir()):
        if package.suffix != ".pth" and "mm2py" not in package.name and not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    return home / "bin" / "python"


def can_import(python: Path, module: str, *, cwd: Path) -> bool:
    """Whether that Python finds *module* by itself."""
    command = [str(python), "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"]
    return subprocess.run(command, cwd=cwd, env={"PYTHONPATH": ""}, check=False).returncode == 0


#: Runs a command where an empty folder lies over the one that is named first.
_HIDING = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')


def why_nothing_can_be_hidden(work_dir: Path) -> str:
    """Return why a process cannot be given a view of the disc of its own here; nothing where it can."""
    folder = work_dir / "hidden"
    folder.mkdir()
    try:
        done = subprocess.run([*_HIDING, str(folder), "true"], check=False, capture_output=True, text=True, timeout=30)
    except FileNotFoundError as error:
        return str(error)
    return "" if done.returncode == 0 else f"no mount in a user namespace of one's own: {done.stderr.strip()}"


@contextmanager
def spark_cluster(
    work_dir: Path, *, workers: int = 2, cores: int = 2, memory: str = "1g", hidden: Path | None = None
) -> Iterator[SparkCluster]:
    """
    Start a master and its workers, each with a work folder of its own, and end them with the block.

    For the workers and all that they start, the folder *hidden* is an empty one.
    """
    with ExitStack() as running:
        port, *web_ports = free_ports(2 + workers)
        master = _start(
            running, work_dir, "master", "master.Master", "--port", str(port), "--webui-port", str(web_ports[0])
        )
        _await_log(master, re.compile(r"I have been elected leader"))
        url = f"spark://{HOST}:{port}"
        started = tuple(
            _start(
                running,
                work_dir,
                f"worker-{number}",
                "worker.Worker",
                *("--cores", str(cores), "--memory", memory, "--webui-port", str(web_ports[1 + number])),
                *("--work-dir", str(work_dir / f"worker-{number}"), url),
                hidden=hidden,
            )
            for number in range(workers)
        )
        for worker in started:
            _await_log(worker, re.compile(r"Successfully registered with master"))
        yield SparkCluster(url, started)


def _start(
    running: ExitStack, work_dir: Path, name: str, main_class: str, *arguments: str, hidden: Path | None = None
) -> LoggedProcess:
    # A process in a namespace of its own has lost the leash that it came with.
    leashed = (sys.executable, "-I", "-S", leash.__file__, str(os.getpid()))
    process = start_process(
        f"Spark {name}",
        [
            *((*_HIDING, str(hidden), *leashed) if hidden is not None else ()),
            *(str(_spark_home() / "bin/spark-class"), f"org.apache.spark.deploy.{main_class}", "--host", HOST),
            *arguments,
        ],
        log_file=work_dir / f"{name}.log",
        env={
            "SPARK_HOME": str(_spark_home()),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
            "SPARK_LAUNCHER_OPTS": _QUICK,
            "PYSPARK_PYTHON": sys.executable,
            # What executors can import is what their own Python has, and what the driver sends them.
            "PYTHONPATH": "",
        },
        cwd=work_dir,
    )
    running.callback(process.terminate)
    return process


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        message = "pyspark is not installed"
        raise LookupError(message)
    return Path(found.origin).parent


def _await_log(process: LoggedProcess, pattern: re.Pattern[str]) -> None:
    deadline = time.monotonic() + scaled(_START_LIMIT_S)
    while not pattern.search(process.log_text()):
        if not process.is_running or time.monotonic() > deadline:
            message = f"{process.name} did not log {pattern.pattern!r}:\n{process.log_tail()}"
            raise AssertionError(message)
        time.sleep(_POLL_S)
