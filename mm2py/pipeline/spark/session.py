"""
Spark, hosted by the asyncio daemon.

Starts Spark's JVM, hands out its context, restarts it when it has died, and stops it in bounded time. Every call into
the JVM happens on a thread; the event loop never waits for Spark. Epochs are plain RDD jobs, which need a
`SparkContext` only: no SQL session is created until it is needed.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import pwd
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

import attrs
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import RDD, SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession as SqlSession

from mm2py.clock import Clock
from mm2py.errors import Mm2Error, Verdict, shortened
from mm2py.pipeline.spark import internals, processes, worker
from mm2py.pipeline.spark.internals import LaunchArguments, collected, forget_gateway
from mm2py.pipeline.spark.java import JavaMissingError, java, require_java
from mm2py.pipeline.spark.package import PACKAGE, zip_package
from mm2py.pipeline.spark.patience import Patience, done_within
from mm2py.pipeline.spark.scratch import Scratch
from mm2py.pipeline.spark.sealing import check_key_file
from mm2py.pipeline.spark.settings import LOOPBACK, SparkSettings, class_archive, spark_settings
from mm2py.pipeline.spark.stderr_log import LAST_WORDS, begin_to_listen, reason
from mm2py.telemetry.events import SparkEnded, SparkHung, SparkLogged, SparkStarted
from mm2py.telemetry.journal import EventLog


P = ParamSpec("P")
T = TypeVar("T")

_WARM_UP_HOLD_S = 0.3
_GRACE_S = 2.0
#: How often Spark's JVM is asked whether it is there, and how long an answer may take. If memory is short it collects
#: garbage for seconds; nothing that it is asked here takes longer by itself.
_ASK_EVERY_S = 5.0
SILENT_FOR_S = 20.0
#: How often, while waiting for something that may take long.
_LOOK_EVERY_S = 1.0
#: A standalone master that was restarted without a recovery mode gives drivers that it does not know no executors.
_NO_EXECUTOR_FOR_S = 60.0
#: What embedded Spark may take to come up. On a cluster it waits for its turn, which has no bound.
_UP_WITHIN_S = 180.0
#: Calls into the JVM at the same time: some for each copy task, of which few last.
_CALLS_MAX = 256


@attrs.define(eq=False)
class SparkStartError(Mm2Error):
    """Spark's JVM ended or refused while it was being started."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = (
        "check the spark.* settings of the file, this host's memory, its limits of processes and of open files "
        "(ulimit -u, -n; TasksMax of systemd, pids of a container), and that the master is reachable"
    )

    master: str
    cause: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"Spark did not start with master {self.master}: {self.cause}"


@attrs.define(eq=False)
class SparkHungError(Mm2Error):
    """Spark hung, on this machine, and was killed."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = (
        "check the memory of this host, and whether a process was stopped (SIGSTOP, a debugger); then try again"
    )

    reason: str

    def __str__(self) -> str:
        return f"Spark hung and was killed: {self.reason}"


@attrs.frozen
class SparkSession:
    """One life of Spark: its context, the JVM's process, and the one-row data set that every epoch maps over."""

    context: SparkContext
    one_row: RDD[int]
    gateway: Any
    process: subprocess.Popen[bytes]
    #: Where executors reach this process, and where it listens for them.
    driver_host: str
    bind_address: str
    #: Calls into a JVM that hangs keep their threads until it is killed; those of others must not run short. They end
    #: when the last reference to this life is gone.
    threads: ThreadPoolExecutor = attrs.field(
        factory=lambda: ThreadPoolExecutor(_CALLS_MAX, thread_name_prefix="spark-call")
    )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def begin(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Have *work*, which calls into the JVM, done on a thread. It need not be awaited."""
        job = asyncio.get_running_loop().run_in_executor(self.threads, functools.partial(work, *args, **named))
        # Where nothing awaits it any more, asyncio would print its exception with a traceback.
        job.add_done_callback(lambda it: None if it.cancelled() else it.exception())
        return job


class SparkHost:
    """The daemon's Spark. `session` returns the live session and starts Spark if there is none."""

    def __init__(
        self,
        user_settings: Mapping[str, str],
        *,
        copy_tasks: int,
        clock: Clock,
        events: EventLog,
        secrets_key_file: str = "",
        uses_sql: bool = False,
    ) -> None:
        self._scratch = Scratch()
        #: A private directory that workers on this machine can see.
        self.scratch = self._scratch.path
        self._user_settings = user_settings
        self._uses_sql = uses_sql
        self.expect(copy_tasks)
        #: Holds the key that plans with secrets are sealed with; None where Spark encrypts what it sends.
        self.secrets_key_file: str | None = secrets_key_file or None
        if self.secrets_key_file is None and self.settings.is_on_this_machine:
            self.secrets_key_file = self._scratch.make_key()
        self._clock = clock
        self._events = events
        self._starting = asyncio.Lock()
        self._session: SparkSession | None = None
        self._is_spoilt = False
        #: Whether an executor is decommissioned: it waits for the last of its tasks.
        self.loses_executors = False
        #: How many processes the kernel had killed for memory at the last two looks.
        self._killed = deque([processes.killed_for_memory()] * 2, maxlen=2)

    def expect(self, copy_tasks: int) -> None:
        """Set how many copy tasks Spark is to have slots for when it starts; it has no effect on one that runs."""
        self.copy_tasks = copy_tasks
        self.settings: SparkSettings = spark_settings(
            self._user_settings,
            copy_tasks=copy_tasks,
            python=os.environ.get("PYSPARK_PYTHON") or sys.executable,
            package_parent=str(PACKAGE.parent),
            log_file=str(Path(__file__).with_name("log4j2.properties")),
            scratch=str(self.scratch),
            archive=class_archive(),
            java_environment=" ".join(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")),
            uses_sql=self._uses_sql,
            has_account=_has_account(),
        )

    @property
    def is_up(self) -> bool:
        """Whether Spark runs, as far as is known without asking it."""
        return self._session is not None and self._session.is_alive and not self._is_spoilt

    async def session(self) -> SparkSession:
        """Return the live session; start Spark, and warm its workers up, if there is none."""
        async with self._starting:
            is_whole = self._scratch.is_whole
            if self.is_up and is_whole and self._session is not None:
                return self._session
            if self._session is not None:
                how = "its context was stopped"
                if not self._session.is_alive:
                    how = f"its JVM {processes.ending(self._session.process.returncode)}"
                how = how if is_whole else "its temporary files were removed"
                self._events.emit(SparkEnded(reason=f"{how}; it is started again"))
                await self._discard(self._session)
            self._session = await self._start()
            return self._session

    @property
    def was_memory_short(self) -> bool:
        """Whether the kernel has killed a process on this machine within the last seconds because memory was short."""
        return processes.killed_for_memory() > self._killed[0]

    def forget(self, session: SparkSession) -> None:
        """Record that *session* accepts no more jobs, because its context was stopped. The next call restarts Spark."""
        if session is self._session and session.is_alive:
            self._is_spoilt = True

    async def watch(self) -> None:
        """Watch for a JVM that does not respond, or that its cluster has forgotten, and end it, until cancelled."""
        looks = 0
        while True:
            await self._clock.sleep(_ASK_EVERY_S)
            self._killed.append(processes.killed_for_memory())
            session, before, looks = self._session, looks, 0
            with suppress(SparkHungError):
                if session and session.is_alive:
                    lacks, self.loses_executors = await self.ask(session, internals.executors, session.context)
                    looks = before + 1 if lacks else 0
            if session and looks * _ASK_EVERY_S >= _NO_EXECUTOR_FOR_S:
                await self.replace(session, f"it has had no executor for {_NO_EXECUTOR_FOR_S:g} s")

    async def ask(self, session: SparkSession, question: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Query a JVM for something immediate; if it does not respond, kill it and raise `SparkHungError`."""
        answer = session.begin(question, *args, **named)
        if not await done_within(answer, SILENT_FOR_S, self._clock):
            reason = f"its JVM has not answered for {SILENT_FOR_S:g} s"
            await self.end_hung(session, reason)
            raise SparkHungError(reason)
        return answer.result()

    async def finished(self, session: SparkSession, job: asyncio.Future[Any], seconds: float) -> bool:
        """
        Wait for *job*, which calls into *session*; whether it is done once *seconds* have passed.

        Where the JVM falls silent meanwhile, end it and raise `SparkHungError`.
        """
        patience = Patience(seconds, self._clock)
        while not job.done() and not patience.is_over():
            await asyncio.wait({job}, timeout=min(_LOOK_EVERY_S, patience.left_s))
            if not job.done():
                await self.ask(session, is_stopped, session)
        return job.done()

    async def replace(self, session: SparkSession, why: str) -> None:
        """End a Spark that is of no use any more; the next call starts another one."""
        async with self._starting:
            if session is self._session:
                self._events.emit(SparkEnded(reason=f"{why}; it is started again"))
                await self._discard(session)

    async def end_hung(self, session: SparkSession, reason: str) -> None:
        """Kill the processes of a hung Spark; the next call restarts it."""
        if session is self._session and session.is_alive:
            self._events.emit(SparkHung(reason))
            await asyncio.to_thread(_kill, session)

    async def stop(self, *, within_s: float) -> None:
        """Stop Spark, by force once *within_s* seconds have passed; remove the private directory."""
        try:
            async with asyncio.timeout(within_s), self._starting:
                if self._session is not None:
                    await self._session.begin(_close, self._session)
        except TimeoutError:
            self._events.emit(SparkEnded(reason=f"killed: it did not stop within {within_s:g} s"))
        if self._session is not None:
            await self._discard(self._session)
        self._scratch.remove()

    async def _start(self) -> SparkSession:
        require_java()
        try:
            await asyncio.to_thread(self._scratch.clear)
        except OSError as error:
            raise SparkStartError(self.settings.master, str(error)) from error
        if self.secrets_key_file is not None:
            check_key_file(self.secrets_key_file)
        begun = self._clock.monotonic()
        loop, given_up = asyncio.get_running_loop(), threading.Event()

        def tell(line: str) -> None:
            if not given_up.is_set():
                loop.call_soon_threadsafe(self._said, line)

        try:
            async with asyncio.timeout(_UP_WITHIN_S if self.settings.is_embedded else None):
                session = await asyncio.to_thread(_open, self.settings, self.scratch, tell, given_up)
                started = self._clock.monotonic()
                await self._warm_up(session)
        except (TimeoutError, asyncio.CancelledError) as error:
            # The thread that starts it would wait for it for ever, and this process for the thread.
            given_up.set()
            grace_s = _GRACE_S if isinstance(error, asyncio.CancelledError) else 0.0
            await asyncio.to_thread(processes.end_launched, grace_s=grace_s)
            forget_gateway()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise SparkStartError(self.settings.master, f"it did not come up within {_UP_WITHIN_S:g} s") from error
        self._events.emit(
            SparkStarted(
                master=self.settings.master,
                start_s=started - begun,
                warm_up_s=self._clock.monotonic() - started,
                ui=session.context.uiWebUrl or "off",
            )
        )
        return session

    async def _warm_up(self, session: SparkSession) -> None:
        try:
            workers = session.begin(_warm_up, session, 1 if self.settings.is_embedded else self.copy_tasks)
            if self._uses_sql:
                await session.begin(_warm_up_sql, session)
            await workers
        except (*JOB_FAILED, Py4JError, OSError) as error:
            cause = await asyncio.to_thread(_end_of, session, error)
            raise SparkStartError(self.settings.master, cause) from error

    async def _discard(self, session: SparkSession) -> None:
        self._session, self._is_spoilt = None, False
        burial = asyncio.get_running_loop().run_in_executor(None, _bury, session)
        try:
            await asyncio.shield(burial)
        finally:
            await asyncio.wait({burial})  # even if this is cancelled: it would let go of the next one's context

    def _said(self, line: str) -> None:
        self._events.emit(SparkLogged(line=line))


def _has_account() -> bool:
    """Whether the system knows this user: a container may run with a number that it has no name for."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _is_news(record: logging.LogRecord) -> bool:
    """Whether the record is worth logging: py4j logs a stack if the JVM ends in the middle of a call."""
    return record.msg != "Exception while sending command."


def _launched(settings: SparkSettings, tell: Callable[[str], object]) -> tuple[Any, deque[str]]:
    """Start Spark's JVM; return the way to it, and what it says last, at any time."""
    last_words: deque[str] = deque(maxlen=LAST_WORDS)
    try:
        write_end, listener = begin_to_listen(last_words, tell)
    except (OSError, RuntimeError) as error:  # files, or threads, are short
        raise SparkStartError(settings.master, str(error)) from error
    # Settings given here become visible arguments of the JVM; the context gets all of them.
    shown = SparkConf(loadDefaults=False).setAll(list(settings.shown_conf))
    # What Spark asks of Python while it plans a query, it asks of this one, not of any that is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", settings.python)
    if settings.is_embedded:
        # Spark's UI has no login, and no other setting for the address at which it listens.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    if not _has_account():
        # Hadoop would ask the system for a name.
        os.environ.setdefault("SPARK_USER", str(os.getuid()))
    try:
        # In a group of its own, a signal to this process's group, as from a terminal that is closed, does not reach it.
        return launch_gateway(shown, popen_kwargs=LaunchArguments(stderr=write_end, process_group=0)), last_words
    except (PySparkException, OSError) as error:  # the latter where a disk is full, or memory or processes are short
        refused = error
    finally:
        os.close(write_end)
    listener.join(_GRACE_S)  # it may not have heard all yet
    words = [str(refused), *last_words]
    if any("UnsupportedClassVersionError" in line for line in words):
        raise JavaMissingError(f"{java()[1]} is too old") from refused
    raise SparkStartError(settings.master, reason(words)) from refused


def _open(
    settings: SparkSettings, scratch: Path, tell: Callable[[str], object], given_up: threading.Event
) -> SparkSession:
    internals.release_unused()
    conf = SparkConf(loadDefaults=False).setAll(list(settings.conf))
    gateway, last_words = _launched(settings, tell)
    logging.getLogger().addFilter(_is_news)
    if given_up.is_set():  # while there was no JVM yet that could have been ended
        _bury_process(gateway.proc)
        gateway.shutdown()
        forget_gateway()
        raise SparkStartError(settings.master, "it is not needed any more")
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        context.pythonExec = settings.python
        internals.silence_accumulators(context)
        host = address = LOOPBACK
        if not settings.is_embedded:
            context.addPyFile(str(zip_package(scratch)))
            host, address = _where_executors_connect(context)
        one_row = context.parallelize([0], 1)
    except Exception as error:
        # The JVM is asked for it.
        cause = reason([*last_words, message_of(error) if isinstance(error, JOB_FAILED) else str(error)])
        _bury_process(gateway.proc)
        gateway.shutdown()
        forget_gateway()
        raise SparkStartError(settings.master, cause) from error
    return SparkSession(context, one_row, gateway, gateway.proc, host, address)


def _where_executors_connect(context: SparkContext) -> tuple[str, str]:
    """Return the driver's host as executors know it, and the address at which it listens."""
    conf = context.getConf()
    host = str(conf.get("spark.driver.host"))
    # An IPv6 address has brackets there.
    return host.strip("[]"), str(conf.get("spark.driver.bindAddress", host)).strip("[]")


def _warm_up(session: SparkSession, workers: int) -> None:
    rows = session.one_row if workers == 1 else session.context.parallelize(range(workers), workers)
    session.context.setJobGroup("mm2py", "warm-up")
    collected(rows.mapPartitions(functools.partial(worker.warm_up, 0.0 if workers == 1 else _WARM_UP_HOLD_S)))


def _warm_up_sql(session: SparkSession) -> None:
    """Make Spark's session for SQL, and have it plan a statement: while workers start, the JVM has little to do."""
    with suppress(*JOB_FAILED, Py4JError, OSError):  # flows that need it will say what is wrong
        sql = SqlSession(session.context)
        internals.plan(sql.sql("SELECT concat(id, 'x') AS id FROM range(1) WHERE id > 0"))


#: What a job that failed raises. Once this process has used Spark SQL, pyspark makes its own error of what it knows.
JOB_FAILED: Final = (Py4JJavaError, PySparkException)


def message_of(error: Py4JJavaError | PySparkException) -> str:
    """Return Spark's message about a failed job; its JVM may have ended by now."""
    if isinstance(error, PySparkException):
        return internals.reason_of(error)
    try:
        return str(error.java_exception.getMessage())
    except (Py4JError, OSError):
        return "Spark is gone"


def why_gone(session: SparkSession, error: Exception) -> str:
    """Return why a call into a JVM failed that is gone, or about to be."""
    with suppress(subprocess.TimeoutExpired):
        return f"Spark's JVM {processes.ending(session.process.wait(_GRACE_S))}"
    return f"Spark is gone ({type(error).__name__})"


def _close(session: SparkSession) -> None:
    if not session.is_alive:
        return
    children = processes.below(session.process.pid)
    try:
        session.context.cancelAllJobs()
        session.context.stop()
        session.gateway.shutdown()
    except (Py4JError, OSError):
        return
    finally:
        processes.kill(children)  # one that is stopped does not end by itself


def _end_of(session: SparkSession, error: Exception) -> str:
    """End a Spark that a first call failed on; return why it did."""
    try:
        return f"its JVM {processes.ending(session.process.wait(_GRACE_S))}"
    except subprocess.TimeoutExpired:
        return message_of(error) if isinstance(error, JOB_FAILED) else str(error)
    finally:
        _bury(session)


def is_stopped(session: SparkSession) -> bool:
    """Whether Spark was stopped. It blocks while the JVM does not answer."""
    return internals.is_stopped(session.context)


def _kill(session: SparkSession) -> None:
    processes.kill_tree(session.process.pid)
    with suppress(subprocess.TimeoutExpired):
        session.process.wait(_GRACE_S)


def _bury(session: SparkSession) -> None:
    children = processes.below(session.process.pid)
    _bury_process(session.process)
    processes.kill(children)
    session.gateway.shutdown()
    internals.end_accumulators(session.context)
    forget_gateway()


def _bury_process(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()  # the JVM's own sign to leave
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    process.kill()
    process.wait()
    processes.reap_orphans()
