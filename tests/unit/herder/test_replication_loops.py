"""Settings whose flows would feed each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.config.settings import ConfigError, MirrorSettings, load_settings
from mm2py.herder.replication_loops import judged


CLUSTERS = "clusters = A, B, C\nA.bootstrap.servers = x:1\nB.bootstrap.servers = y:1\nC.bootstrap.servers = z:1\n"
BOTH_WAYS = CLUSTERS + "A->B.enabled = true\nB->A.enabled = true\n"
#: Two aliases of one cluster.
LOOP_BACK = "clusters = A, B\nA.bootstrap.servers = x:1, x:2\nB.bootstrap.servers = x:2\nA->B.enabled = true\n"
IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
BLIND = """
from mm2py.policy.replication import DefaultReplicationPolicy


class Blind(DefaultReplicationPolicy):
    def topic_source(self, topic):
        return None


class Broken(DefaultReplicationPolicy):
    def topic_source(self, topic):
        raise RuntimeError("not today")


class Mute(DefaultReplicationPolicy):
    def format_remote_topic(self, source_alias, topic):
        raise RuntimeError("not today")


class Listed(DefaultReplicationPolicy):
    def format_remote_topic(self, source_alias, topic):
        return {"orders": "shop-orders"}.get(topic)
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module with policies of one's own."""
    name = f"house_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(BLIND)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def judge(tmp_path: Path, text: str, *targets: str) -> MirrorSettings:
    """Load and judge a file."""
    path = tmp_path / "mm2.properties"
    path.write_text(text)
    return judged(load_settings(path, targets=targets))


@pytest.mark.parametrize("targets", [(), ("B",)], ids=["all", "one node of two"])
def test_flows_that_feed_each_other_are_refused(tmp_path: Path, targets: tuple[str, ...]) -> None:
    """The line says which flows, which topic and what to do, also where another node runs one of them."""
    with pytest.raises(ConfigError) as refused:
        judge(tmp_path, BOTH_WAYS + IDENTITY, *targets)

    (problem,) = refused.value.problems
    assert str(problem).startswith(
        "mm2.properties: replication.policy.class: A->B, B->A would feed each other without end: "
        "each record of topic orders goes round"
    )
    assert "mirror one way only" in problem.hint


def test_a_topic_that_would_be_copied_into_itself_is_refused(tmp_path: Path) -> None:
    """Two aliases that share a broker are one cluster: with its name kept, each record would come again and again."""
    with pytest.raises(ConfigError) as refused:
        judge(tmp_path, LOOP_BACK + IDENTITY + "topics = test\n")

    (problem,) = refused.value.problems
    assert problem.key == "bootstrap.servers"
    assert problem.message == (
        "A->B would feed itself without end: each record of topic test goes round and round, because A and B are one "
        "cluster and A->B keeps names"
    )
    assert "remote.topic.suffix" in problem.hint


def test_aliases_that_contain_the_separator_are_what_to_change(tmp_path: Path) -> None:
    """The default policy is in use already; which cluster a topic came from cannot be told from such names."""
    with pytest.raises(ConfigError) as refused:
        judge(tmp_path, BOTH_WAYS.replace("A", "eu.west").replace("B", "us.east"))

    (problem,) = refused.value.problems
    assert problem.hint == "choose aliases without '.', or another replication.policy.separator"


def test_a_ring_over_two_aliases_of_one_cluster_is_refused(tmp_path: Path) -> None:
    """A->C and C->B lead back to where they began, if A and B are one cluster."""
    back = CLUSTERS.replace("y:1", "x:1") + "A->C.enabled = true\nC->B.enabled = true\n"
    with pytest.raises(ConfigError, match="because A and B are one cluster and"):
        judge(tmp_path, back + IDENTITY)


def test_which_aliases_are_one_cluster_is_decided_by_its_id(tmp_path: Path) -> None:
    """Addresses that differ are of one cluster if its brokers say so, and then the ring over it is refused."""
    path = tmp_path / "mm2.properties"
    path.write_text(CLUSTERS + "A->C.enabled = true\nC->B.enabled = true\n" + IDENTITY)
    settings = load_settings(path)

    assert judged(settings, {"A": "one", "B": "another"}).notes == judged(settings).notes
    with pytest.raises(ConfigError, match="because A and B are one cluster and"):
        judged(settings, {"A": "one", "B": "one"})


@pytest.mark.parametrize(
    "text",
    [
        LOOP_BACK,
        LOOP_BACK + IDENTITY + "remote.topic.suffix = .mirror\n",
        LOOP_BACK + IDENTITY + "remote.topic.prefix = copy-\nB->A.enabled = true\n",
        BOTH_WAYS + IDENTITY + "remote.topic.suffix = .mirror\n",
        BOTH_WAYS + IDENTITY + "A->B.remote.topic.suffix = .a\nB->A.remote.topic.prefix = b.\nA->B.topics = x.*\n",
        BOTH_WAYS + "remote.topic.prefix = p-\n",
        BOTH_WAYS,
        BOTH_WAYS + "A->B." + IDENTITY,
        BOTH_WAYS.replace("B->A.enabled = true", "B->A.enabled = false") + IDENTITY,
        BOTH_WAYS + IDENTITY + "A->B.topics = a\nB->A.topics = b\n",
        BOTH_WAYS + "A->B.replication.policy.class = nowhere.Lost\nB->A." + IDENTITY,
    ],
    ids=[
        "loop-back by default",
        "loop-back with a suffix",
        "loop-back both ways with a prefix",
        "a suffix in both ways",
        "other topics in each way",
        "a prefix after the alias",
        "default",
        "one of them keeps names",
        "one way",
        "other topics",
        "one of them will not start",
    ],
)
def test_others_are_taken_as_they_are(tmp_path: Path, text: str) -> None:
    """Neither refused nor noted."""
    settings = judge(tmp_path, text)

    assert not any("feed each other" in note.message for note in settings.notes)


def test_a_policy_of_one_s_own_is_warned_of(tmp_path: Path, house: str) -> None:
    """A class that cannot see circles gets a note, and runs."""
    settings = judge(tmp_path, BOTH_WAYS + f"replication.policy.class = {house}.Blind\n")

    note = settings.notes[-1]
    assert "A->B, B->A would feed each other without end" in note.message
    assert "topic_source()" in note.hint


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("Broken", ("is uncertain", "not today")),
        ("Listed", ("is uncertain: the policy of A->B: format_remote_topic('A', 'mm2py-probe')", "it answers None")),
    ],
)
def test_a_policy_that_has_no_name_for_a_topic(tmp_path: Path, house: str, policy: str, says: tuple[str, ...]) -> None:
    """It raises, or has names for what is mirrored alone; the search asks for others. Nothing can be said then: the
    flows start, and their own life shows what is wrong.
    """
    settings = judge(tmp_path, BOTH_WAYS + f"replication.policy.class = {house}.{policy}\n")

    assert all(words in settings.notes[-1].message for words in says)


def test_a_policy_that_raises_hides_no_loop_of_other_flows(tmp_path: Path, house: str) -> None:
    """They would run, and copy for ever."""
    other = f"A->C.enabled = true\nA->C.replication.policy.class = {house}.Mute\n"
    with pytest.raises(ConfigError, match="A->B, B->A would feed each other without end"):
        judge(tmp_path, BOTH_WAYS + other + IDENTITY)


RING = ("A->B", "B->C", "C->A")
ROUTER = {
    "transforms": "strip",
    "transforms.strip.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.strip.regex": "[A-C][.](.*)",
    "transforms.strip.replacement": "$1",
}


def test_routers_count(tmp_path: Path) -> None:
    """A router that takes away what shows a record's way is found out before it sends one round for ever."""
    ring = CLUSTERS + "".join(f"{flow}.enabled = true\n" for flow in RING)
    routers = "".join(f"{flow}.{key} = {value}\n" for flow in RING for key, value in ROUTER.items())
    with pytest.raises(ConfigError) as refused:
        judge(tmp_path, ring + routers)

    (problem,) = refused.value.problems
    assert "each record of topic orders goes round and round" in problem.message
    assert problem.message.endswith("because routers of A->B and B->C and C->A hide where it came from")
    assert "make sure that routers keep the policy's prefix" in problem.hint
    assert not any("feed each other" in note.message for note in judge(tmp_path, ring).notes)


def test_two_flows_into_one_remote_topic_are_noted(tmp_path: Path) -> None:
    """They run, as in Java; of names that show the source nothing is said."""
    text = CLUSTERS + "A->C.enabled = true\nB->C.enabled = true\n"
    (note,) = (note for note in judge(tmp_path, text + IDENTITY).notes if "both write" in note.message)

    assert note.message.startswith("A->C and B->C both write to topic orders of C, if both sources have")
    assert "remote.topic.prefix" in note.hint
    assert not any("both write" in note.message for note in judge(tmp_path, text).notes)
