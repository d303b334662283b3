"""
Every shell line of the README, executed in a copy of the checkout.

What is changed before a line is run, and why, stands here and nowhere else:

- ``~/mm2py`` is a folder of the test's own, and ``python3`` the interpreter that runs the tests.
- The sample's bootstrap servers are those of the tests' clusters, and its topics the test's own.
- ``pip install .`` leaves dependencies out, half a gigabyte; the lines after it find those of this interpreter.
- ``scripts/demo`` prints its help, for test_demo.py runs it; with ``--keep-running`` it shows a shorter stream.
- ``scripts/test`` collects instead of running: it is the command that runs this test.
- Lines that would run for ever are ended by a signal, as their reader would, once they have done what they are for.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import attrs
import psutil
import pytest

from mm2py.config.settings import load_settings
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.ports import free_ports
from mm2py.devkit.process import LoggedProcess, start_process
from tests.support.eventually import eventually, scaled
from tests.support.mirrored import assert_mirrored
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic


ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DEPLOYING = (ROOT / "docs/deploying.md").read_text()
LINE_LIMIT_S = 300.0
RECORDS = 1_000
SHORTER = "--seconds 3 --rate 500"
MIRROR = "~/mm2py/bin/connect-mirror-maker mm2.properties"


def blocks(page: str, language: str) -> list[str]:
    """Return a page's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


LINES = [line for block in blocks(README, "sh") for line in block.splitlines()]


@attrs.define
class Reader:
    """A user who follows the README line by line, in a checkout of their own."""

    checkout: Path
    home: Path
    topics: str
    source: str
    target: str
    followed: set[str] = attrs.field(factory=set)
    #: The node that lines speak to, once one did, and where it listens.
    node: LoggedProcess | None = None
    url: str = ""
    #: A topic that a line has mirrored.
    mirrored: str = ""

    @property
    def orders(self) -> str:
        """Return the topic that stands for the README's own."""
        return f"{self.topics}-orders"

    def meant(self, line: str) -> str:
        """Return a line with a topic of this reader's own."""
        return line.replace("orders", self.orders)

    def speaking(self) -> dict[str, str]:
        """Return the environment of lines that speak to the node."""
        return {**_dependencies(), "MM2PY_URL": self.url}

    def start(self, line: str, *, env: dict[str, str] | None = None) -> LoggedProcess:
        """Start a line in the checkout; what it prints goes to a file."""
        command = line.replace("~/mm2py", str(self.home / "mm2py"))
        return start_process(
            line,
            ["bash", "-c", f"exec {command}"],
            log_file=self.home / f"{len(list(self.home.glob('*.out')))}.out",
            env={"MM2PY_VENV": sys.prefix, "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}", **(env or {})},
            cwd=self.checkout,
        )

    def end_node(self) -> None:
        """End the node that lines spoke to: other nodes, other tests' too, have a flow of this name."""
        if self.node is not None:
            for line in TAKING_BACK:
                self.start(self.meant(line), env=self.speaking()).wait(scaled(60.0))
            self.node.terminate(scaled(60.0))
            self.node = None

    async def follow(self, line: str, *, env: dict[str, str] | None = None) -> str:
        """Run a line to its end, which must be a good one; return what it printed."""
        process = await asyncio.to_thread(self.start, line, env=env)
        try:
            exit_code = await asyncio.to_thread(process.wait, scaled(LINE_LIMIT_S))
            text = process.log_text()
        finally:
            await asyncio.to_thread(process.kill)

        assert exit_code == 0, text
        return text

    async def follow_before(self, line: str) -> None:
        """Follow the lines before *line* that prepare something, each once."""
        for earlier in LINES[: LINES.index(line)]:
            if earlier in PREPARING and earlier not in self.followed:
                self.followed.add(earlier)
                await LINES_MEAN[earlier](self, earlier)


@pytest.fixture(scope="module")
def reader(both_clusters: dict[str, KafkaCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Copy the checkout and have its sample point to the tests' clusters."""
    home = tmp_path_factory.mktemp("readme")
    checkout = home / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".git", ".*cache", "__pycache__", ".hypothesis"))
    source, target = (both_clusters[name].bootstrap_servers for name in ("primary", "backup"))
    sample = checkout / "etc/mm2.properties"
    text = sample.read_text()
    for shown, meant in (
        ("localhost:9092", source),
        ("localhost:9093", target),
        ("A->B.topics = .*", f"A->B.topics = {home.name}.*"),
    ):
        assert shown in text
        text = text.replace(shown, meant)
    sample.write_text(text)
    reader = Reader(checkout, home, home.name, source, target)
    yield reader
    reader.end_node()


async def prints(process: LoggedProcess, pattern: str) -> None:
    """Wait until a line prints something."""

    def found() -> re.Match[str] | None:
        is_running = process.is_running
        match = re.search(pattern, process.log_text())
        assert match or is_running, f"it ended with {process.exit_code}:\n{process.log_text()}"
        return match

    await eventually(found, within_s=LINE_LIMIT_S, what=f"{process.name} prints {pattern}")


async def end(process: LoggedProcess, number: signal.Signals) -> int:
    """End a line's processes as its reader would; kill them if they do not end."""
    below = psutil.Process(process.pid).children(recursive=True) if process.is_running else []
    process.signal(number)
    try:
        return await asyncio.to_thread(process.wait, scaled(60.0))
    finally:
        await asyncio.to_thread(process.kill)
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()


async def runs_to_its_end(reader: Reader, line: str) -> None:
    await reader.follow(line)


async def types(line: str) -> str:
    """Run a line that the demo says to try; return what it printed."""
    typed = await asyncio.create_subprocess_shell(line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, error = await typed.communicate()

    assert typed.returncode == 0, error.decode()
    return out.decode()


async def stays_up_until_ctrl_c(reader: Reader, line: str) -> None:
    process = await asyncio.to_thread(reader.start, f"{line} {SHORTER}")
    await prints(process, " groups --url")
    watching, pausing, grouping = re.findall(r"^    (\S.* --url \S+)$", process.log_text(), re.MULTILINE)
    shown = dict(re.findall(r"^  (?:status )?(\w+) +(\S+)$", process.log_text(), re.MULTILINE))
    settings = load_settings(Path(shown["settings"]))
    async with aiohttp.ClientSession() as browser, browser.get(shown["page"], headers={"Accept": "text/html"}) as page:
        found = await page.text()
    paused = await types(pausing)

    async def is_read_by_the_group() -> bool:
        return "shop-reports" in await types(grouping)

    await eventually(is_read_by_the_group, within_s=60, what="the demo's group is translated")
    exit_code = await end(process, signal.SIGINT)

    assert shown["primary"] in settings.flows[0].source.bootstrap_servers
    assert "<title>" in found
    assert " topics --watch " in watching
    assert "topic orders of primary->backup resumed" in paused
    assert exit_code == 0
    assert not await asyncio.to_thread(Path(shown["settings"]).exists)


async def collects_tests(reader: Reader, line: str) -> None:
    text = await reader.follow(f"{line} --collect-only --quiet tests/unit/model")

    assert re.search(r"\d+ tests collected", text)


async def tells_its_options(reader: Reader, line: str) -> None:
    purposes = {"scripts/bench": "Java MirrorMaker 2, side by side", "scripts/demo": "between two real Kafka clusters"}

    assert purposes[line] in await reader.follow(f"{line} --help")


async def installs_the_package(reader: Reader, line: str) -> None:
    await reader.follow(line.replace("install .", "install --quiet --no-deps ."))
    installed = reader.home / "mm2py/bin/connect-mirror-maker"

    assert installed.exists()


async def validates(reader: Reader, line: str) -> None:
    said = await reader.follow(line, env=_dependencies())

    assert "mm2.properties: no problems; flows: A->B; only heartbeats: B->A\n" in said


async def checks(reader: Reader, line: str) -> None:
    assert "ready" in (await reader.follow(line, env=_dependencies())).splitlines()


async def explains(reader: Reader, line: str) -> None:
    said = " ".join((await reader.follow(line, env=_dependencies())).split())

    assert "A->B: the client that reads A source.bootstrap.servers =" in said
    assert "replication.factor = 1 [mm2.properties:" in said


async def mirrors_until_it_is_told_to_stop(reader: Reader, line: str) -> None:
    topic = f"{reader.topics}-{LINES.index(line)}"
    await create_topic(reader.source, topic, partitions=2)
    await produce_numbers(reader.source, topic, count=RECORDS, partitions=2)
    process = await asyncio.to_thread(reader.start, line, env=_dependencies())
    try:
        await prints(process, '"event": "flow_started"')
        await assert_mirrored(reader.source, topic, reader.target, f"A.{topic}", RECORDS)
    finally:
        exit_code = await end(process, signal.SIGTERM)

    assert exit_code == 0, process.log_text()
    reader.mirrored = topic


async def asks_the_node(reader: Reader, line: str) -> None:
    if reader.node is None:
        await create_topic(reader.source, reader.orders, partitions=1)
        (port,) = free_ports(1)
        reader.url = f"http://127.0.0.1:{port}"
        run = f"{MIRROR} --override listeners={reader.url}"
        reader.node = await asyncio.to_thread(reader.start, run, env=_dependencies())
        await prints(reader.node, '"event": "flow_started"')
    said = await reader.follow(reader.meant(line), env=reader.speaking())

    assert said.strip()


async def compares(reader: Reader, line: str) -> None:
    await asyncio.to_thread(reader.end_node)
    if not reader.mirrored:
        await mirrors_until_it_is_told_to_stop(reader, f"{MIRROR} --clusters B")

    assert f"{RECORDS:,}" in await reader.follow(f"{line} --topics {reader.mirrored}", env=_dependencies())


def _dependencies() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})}


#: What each line must do. A line that is not here, or that the README no longer has, fails a test.
LINES_MEAN: dict[str, Callable[[Reader, str], Awaitable[None]]] = {
    "scripts/demo": tells_its_options,
    "scripts/demo --keep-running": stays_up_until_ctrl_c,
    "scripts/test": collects_tests,
    "python3 -m venv ~/mm2py": runs_to_its_end,
    "~/mm2py/bin/pip install .": installs_the_package,
    "cp etc/mm2.properties mm2.properties": runs_to_its_end,
    "~/mm2py/bin/connect-mirror-maker mm2.properties --validate": validates,
    "~/mm2py/bin/mm2py check mm2.properties": checks,
    '~/mm2py/bin/connect-mirror-maker mm2.properties --explain "A->B"': explains,
    "~/mm2py/bin/connect-mirror-maker mm2.properties --clusters B": mirrors_until_it_is_told_to_stop,
    "~/mm2py/bin/mm2py status": asks_the_node,
    '~/mm2py/bin/mm2py flow "A->B"': asks_the_node,
    '~/mm2py/bin/mm2py flow "A->B" topics --sort lag': asks_the_node,
    '~/mm2py/bin/mm2py flow "A->B" limit --bytes-per-s 10M': asks_the_node,
    '~/mm2py/bin/mm2py flow "A->B" pause --topic orders': asks_the_node,
    '~/mm2py/bin/mm2py flow "A->B" config set refresh.topics.interval.seconds=60': asks_the_node,
    '~/mm2py/bin/mm2py verify mm2.properties "A->B"': compares,
    "scripts/in-venv scripts/connect-mirror-maker.py mm2.properties --clusters B": mirrors_until_it_is_told_to_stop,
}
#: What the lines ordered is kept on the target cluster.
TAKING_BACK = tuple(
    f'~/mm2py/bin/mm2py flow "A->B" {rest}' for rest in ("limit --none", "resume --topic orders", "config revert")
)
#: Lines that later ones build on.
PREPARING = ("python3 -m venv ~/mm2py", "~/mm2py/bin/pip install .", "cp etc/mm2.properties mm2.properties")


def test_each_line_has_a_meaning() -> None:
    """The README's lines and those that are tested are the same."""
    assert sorted(LINES_MEAN) == sorted(LINES)


@pytest.mark.parametrize("line", LINES)
async def test_each_line_does_what_it_is_for(reader: Reader, line: str) -> None:
    """A reader who follows the README line by line gets what it promises."""
    await reader.follow_before(line)
    if line not in reader.followed:
        reader.followed.add(line)
        await LINES_MEAN[line](reader, line)


@pytest.mark.parametrize("page", [README, DEPLOYING], ids=["README", "deploying"])
def test_settings_that_are_shown_are_settings(tmp_path: Path, page: str) -> None:
    """The settings of a page can be added to the sample file."""
    file = tmp_path / "mm2.properties"
    shown_blocks = blocks(page, "properties")

    assert shown_blocks
    for block in shown_blocks:
        file.write_text((ROOT / "etc/mm2.properties").read_text() + block)
        shown = dict(re.findall(r"^(\S+) = (.*)$", block, re.MULTILINE))
        settings = load_settings(file)

        known = {f"{one.owner}.{one.key}": one.value for one in settings.effective} | dict(settings.spark)

        assert shown.items() <= known.items()
