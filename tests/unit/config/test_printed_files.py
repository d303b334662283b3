"""Files as MirrorMaker's own README and KIP-382 print them: they run, or the correction is exact. And our own lines."""

from __future__ import annotations

import re
from pathlib import Path

from mm2py.config.properties import parse_text
from mm2py.config.settings import MirrorSettings
from tests.support.config_files import ConfigFile


README_START = """\
# mm2.properties
clusters = us-west, us-east
us-west.bootstrap.servers = host1:9092
us-east.bootstrap.servers = host2:9092

topics = .*
groups = group1, group2
emit.checkpoints.interval.seconds = 10

# configure a specific cluster
us-west.offset.storage.topic = mm2-offsets

# configure a specific source->target replication flow
us-west->us-east.emit.heartbeats = false

us-west->us-east.enabled = true     # disabled by default
"""

README_DATA_CENTRES = """\
# mm2.properties
clusters: west-1, west-2, east-1, east-2, north-1, north-2

west-1.bootstrap.servers = ...
---%<---

# active/active in west
west-1->west-2.enabled = true
west-2->west-1.enabled = true

# active/active in east
east-1->east-2.enabled = true
east-2->east-1.enabled = true

# active/active in north
north-1->north-2.enabled = true
north-2->north-1.enabled = true

# XDCR via west-1, east-1, north-1
west-1->east-1.enabled = true
west-1->north-1.enabled = true
east-1->west-1.enabled = true
east-1->north-1.enabled = true
north-1->west-1.enabled = true
north-1->east-1.enabled = true
"""

README_CONNECTORS = """\
clusters = primary, backup
primary.bootstrap.servers = p:9092
backup.bootstrap.servers = b:9092
primary->backup.enabled = true
backup.ssl.truststore.location = /usr/lib/jvm/zulu-8-amd64/jre/lib/security/cacerts // SSL cert location
backup.security.protocol = SSL // if target cluster needs SSL to send message
backup->primary.enabled = false // set to false if one-way replication is desired
primary->backup.topics.blacklist = topics_to_blacklist
primary->backup.emit.heartbeats.enabled = false
primary->backup.sync.group.offsets = true\x20
"""

README_CLIENTS = """\
clusters = primary, backup
primary.bootstrap.servers = p:9092
backup.bootstrap.servers = b:9092
primary->backup.enabled = true
 backup.producer.compression.type = gzip
 backup.producer.buffer.memory = 32768
 primary.consumer.isolation.level = read_committed
 primary.admin.bootstrap.servers = localhost:9092
backup.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://localhost:8080
"""

KIP_382 = """\
# mm2.properties
clusters = us-west, us-east
cluster.us-west.brokers.list = host1:9092
cluster.us-east.brokers.list = host2:9092
topics = .*
groups = .*
emit.checkpoints.interval.seconds = 10
cluster.us-west.offset.storage.topic = mm2-offsets
connector.us-west->us-east.emit.heartbeats = false
"""


def _corrections(settings: MirrorSettings) -> dict[str, str]:
    """Return what to write instead, by the line."""
    return {note.where.removeprefix("mm2.properties:"): note.hint for note in settings.notes}


def _enabled(settings: MirrorSettings) -> list[str]:
    return [str(flow.flow) for flow in settings.flows if flow.is_enabled]


def test_the_readme_s_first_file(config: ConfigFile) -> None:
    """Java takes the comment for a part of the value, and the flow for disabled; here the correction is said."""
    (problem,) = config.problems(README_START, base="")
    settings = config.load(README_START.replace("     # disabled by default", ""), base="")

    assert (problem.where, problem.key) == ("mm2.properties:16", "us-west->us-east.enabled")
    assert _enabled(settings) == ["us-west->us-east"]
    assert settings.flows[0].source_connector.topics.names == (".*",)
    assert _corrections(settings)["14"] == "did you mean us-west->us-east.emit.heartbeats.enabled?"


def test_the_readme_s_data_centres(config: ConfigFile) -> None:
    """Every place that is left open is named; once it is filled, each node runs the flows into its clusters."""
    named = [(it.where, it.key) for it in config.problems(README_DATA_CENTRES, base="")]
    opened = README_DATA_CENTRES.replace("= ...\n---%<---", "= w1:9092\nbootstrap.servers = other:9092")
    node = config.load(opened, targets=["west-1", "west-2"], base="")

    assert named[0] == ("mm2.properties:2", "west-2.bootstrap.servers")
    assert ("mm2.properties:4", "west-1.bootstrap.servers") in named
    assert _enabled(node) == ["west-1->west-2", "west-2->west-1", "east-1->west-1", "north-1->west-1"]


def test_the_readme_s_settings_of_connectors(config: ConfigFile) -> None:
    """Three comments behind values are refused, each with its line; without them the old names work with a note."""
    problems = config.problems(README_CONNECTORS, base="")
    mended = "\n".join(line.partition(" // ")[0] for line in README_CONNECTORS.splitlines())
    # There is no store of certificates at that place here.
    mended = mended.replace("backup.security.protocol = SSL", "").replace("backup.ssl.truststore.location", "#")
    settings = config.load(mended, base="")

    assert [(problem.where, problem.key) for problem in problems] == [
        ("mm2.properties:5", "backup.ssl.truststore.location"),
        ("mm2.properties:6", "backup.security.protocol"),
        ("mm2.properties:7", "backup->primary.enabled"),
    ]
    assert _enabled(settings) == ["primary->backup"]
    assert settings.flows[0].source_connector.topics.exclude == ("topics_to_blacklist",)
    found = _corrections(settings)
    assert found["8"] == "write topics.exclude"
    assert found["10"] == "did you mean primary->backup.sync.group.offsets.enabled?"


def test_the_readme_s_settings_of_clients(config: ConfigFile) -> None:
    """It runs as it is; what has no effect is named, with the reason."""
    settings = config.load(README_CLIENTS, base="")
    limits = settings.flows[0].source_connector.limits

    assert _enabled(settings) == ["primary->backup"]
    assert limits.reads_committed
    assert limits.buffer_bytes == 1024 * 1024
    assert _corrections(settings)["8"] == "write primary.bootstrap.servers"


def test_kip_382_s_file(config: ConfigFile) -> None:
    """The draft's spellings work, each with a note that names today's; the draft did not need to enable flows."""
    settings = config.load(KIP_382, base="")
    running = config.load(KIP_382 + "us-west->us-east.enabled = true\n", base="")

    assert {alias: end.bootstrap_servers for alias, end in settings.clusters.items()} == {
        "us-west": ("host1:9092",),
        "us-east": ("host2:9092",),
    }
    assert not next(flow for flow in settings.flows if flow.flow.source == "us-east").is_enabled
    assert "us-west->us-east" not in [str(flow.flow) for flow in settings.flows]
    assert _corrections(settings)["3"] == "write us-west.bootstrap.servers"
    assert any("add us-west->us-east.enabled = true" in note.hint for note in settings.notes)
    assert _enabled(running) == ["us-west->us-east"]
    assert not running.flows[0].heartbeat_connector.is_emitted


def test_lines_of_our_pages_can_be_copied() -> None:
    """What follows a value is part of it, and a reference needs its provider: else the lines are refused."""
    root = Path(__file__).parents[3]
    pages = {page: page.read_text() for page in (root / "README.md", *sorted((root / "docs").glob("*.md")))}
    blocks = [
        (page.name, block)
        for page, text in pages.items()
        for block in re.findall(r"^```properties\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]
    wrong = [
        (name, entry.key)
        for name, block in blocks
        for entry in parse_text(block, name=name).entries
        if entry.trailing_comment or ("${" in entry.value and "config.providers" not in block)
    ]

    assert len(blocks) > 10
    assert not wrong
