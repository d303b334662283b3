"""The naming policies. Expected values were made with Kafka 4.3.1's own classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.policy.replication import (
    AffixedReplicationPolicy,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    PlainReplicationPolicy,
    VerbatimReplicationPolicy,
    keeps_names,
)


DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy("A")
MIRROR = AffixedReplicationPolicy(IDENTITY, suffix=".mirror")
BOTH_ENDS = AffixedReplicationPolicy(DEFAULT, "dc1-", "-copy")
_TOPICS = st.lists(st.sampled_from(["A", "B", ".", "_", "heartbeats", "foo", "internal"]), max_size=6).map("".join)


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("A.orders", "A", "orders", "orders"),
        ("B.A.orders", "B", "A.orders", "orders"),
        ("foo.", None, None, "foo."),
        ("foo..", None, None, "foo.."),
        (".b", "", "b", "b"),
        ("a..b", "a", ".b", "b"),
        ("", None, None, ""),
        (".", None, None, "."),
    ],
)
def test_the_default_policy_reads_hops_off_the_name(
    topic: str, source: str | None, upstream: str | None, original: str
) -> None:
    """Source, upstream and original topic come from the pieces of the name, Java's split rule included."""
    assert (source, upstream, original) == (
        DEFAULT.topic_source(topic),
        DEFAULT.upstream_topic(topic),
        DEFAULT.original_topic(topic),
    )


@pytest.mark.parametrize(
    ("policy", "topic", "expected"),
    [
        (DefaultReplicationPolicy(""), "orders", ("Aorders", "o", "rders", "s")),
        (DefaultReplicationPolicy(""), "o", ("Ao", None, None, "o")),
        (DefaultReplicationPolicy(""), "", ("A", None, None, "")),
        (DefaultReplicationPolicy(""), "Aheartbeats", ("AAheartbeats", "A", "heartbeats", "s")),
        (IdentityReplicationPolicy("A", ""), "orders", ("orders", "A", "orders", "orders")),
        (IdentityReplicationPolicy("A", ""), "heartbeats", ("Aheartbeats", "h", "eartbeats", "eartbeats")),
        (IdentityReplicationPolicy("A", ""), "Aheartbeats", ("AAheartbeats", "A", "heartbeats", "eartbeats")),
    ],
)
def test_an_empty_separator_is_read_as_java_reads_it(
    policy: DefaultReplicationPolicy | IdentityReplicationPolicy, topic: str, expected: tuple[str | None, ...]
) -> None:
    """Java's split at nothing gives characters, so that a heartbeats topic is none; many files have it."""
    assert expected == (
        policy.format_remote_topic("A", topic),
        policy.topic_source(topic),
        policy.upstream_topic(topic),
        policy.original_topic(topic),
    )
    assert not policy.is_heartbeats_topic(topic)
    assert policy.offset_syncs_topic("B") == "mm2-offset-syncsBinternal"
    assert policy.is_checkpoints_topic("Acheckpointsinternal")


@pytest.mark.parametrize(
    ("topic", "remote", "source", "upstream"),
    [
        ("orders", "orders", "A", "orders"),
        ("X.orders", "X.orders", "A", "X.orders"),
        ("heartbeats", "A.heartbeats", None, None),
        ("X.heartbeats", "A.X.heartbeats", "X", "heartbeats"),
        ("my-heartbeats", "A.my-heartbeats", None, None),
    ],
)
def test_the_identity_policy_keeps_all_names_but_heartbeats(
    topic: str, remote: str, source: str | None, upstream: str | None
) -> None:
    """Names stay as they are and all claim the source cluster; what ends in heartbeats follows the default."""
    assert (remote, source, upstream) == (
        IDENTITY.format_remote_topic("A", topic),
        IDENTITY.topic_source(topic),
        IDENTITY.upstream_topic(topic),
    )


@pytest.mark.parametrize("topic", ["orders", "my-heartbeats", "X.heartbeats", "heartbeats"])
def test_policies_of_others_keep_such_names_too(topic: str) -> None:
    """Only the heartbeats themselves have another name at the target, which has its own; without them none has."""
    plain, verbatim = PlainReplicationPolicy("A"), VerbatimReplicationPolicy("A")
    is_one = topic == "heartbeats"

    assert plain.format_remote_topic("A", topic) == ("A.heartbeats" if is_one else topic)
    assert (plain.is_heartbeats_topic(topic), verbatim.is_heartbeats_topic(topic)) == (is_one, False)
    assert verbatim.format_remote_topic("A", topic) == verbatim.upstream_topic(topic) == topic


@pytest.mark.parametrize(
    ("topic", "is_internal"),
    [
        ("__consumer_offsets", True),
        (".hidden", True),
        ("mm2-offsets.CLUSTER.internal", True),
        ("mm2-offset-syncs.B.internal", True),
        ("A.checkpoints.internal", True),
        ("B.A.checkpoints.internal", True),
        ("mm2-offsets_CLUSTER_internal", False),
        ("orders.internal", False),
        ("mm2-internal", False),
        ("heartbeats", False),
        ("_hidden", False),
    ],
)
@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY], ids=["default", "identity"])
def test_internal_topics(
    policy: DefaultReplicationPolicy | IdentityReplicationPolicy, topic: str, is_internal: bool
) -> None:
    """Kafka's own, hidden, and a mirror's topics are internal; a user's topic that ends in .internal is not."""
    assert is_internal is policy.is_internal_topic(topic)


@pytest.mark.parametrize(
    ("enabled", "offset_syncs", "checkpoints"),
    [
        (True, "mm2-offset-syncs_B_internal", "A_checkpoints_internal"),
        (False, "mm2-offset-syncs.B.internal", "A.checkpoints.internal"),
    ],
)
@pytest.mark.parametrize("policy_class", [DefaultReplicationPolicy, IdentityReplicationPolicy])
def test_internal_names_follow_the_separator_only_where_told(
    policy_class: type[DefaultReplicationPolicy | IdentityReplicationPolicy],
    enabled: bool,
    offset_syncs: str,
    checkpoints: str,
) -> None:
    """Heartbeats never change; the others take the separator unless its use for internal topics is off."""
    policy = policy_class(separator="_", internal_separator_enabled=enabled)

    assert (offset_syncs, checkpoints, "heartbeats") == (
        policy.offset_syncs_topic("B"),
        policy.checkpoints_topic("A"),
        policy.heartbeats_topic(),
    )
    assert policy.is_internal_topic(offset_syncs)
    assert policy.is_checkpoints_topic(checkpoints)


@pytest.mark.parametrize(
    ("policy", "topic", "remote"),
    [
        (MIRROR, "orders", "orders.mirror"),
        (MIRROR, "A.orders", "A.orders.mirror"),
        (MIRROR, "heartbeats", "A.heartbeats"),
        (MIRROR, "my-heartbeats", "my-heartbeats.mirror"),
        (AffixedReplicationPolicy(IDENTITY, "dc1-"), "my-heartbeats", "A.dc1-my-heartbeats"),
        (BOTH_ENDS, "orders", "A.dc1-orders-copy"),
        (BOTH_ENDS, "heartbeats", "A.heartbeats"),
    ],
)
def test_prefix_and_suffix_are_added_and_read_back(policy: AffixedReplicationPolicy, topic: str, remote: str) -> None:
    """They stand around the topic's name, after the alias; heartbeats do without; one hop back undoes one hop."""
    assert remote == policy.format_remote_topic("A", topic)
    assert ("A", topic) == (policy.topic_source(remote), policy.upstream_topic(remote))


@pytest.mark.parametrize(
    ("policy", "topic", "source", "upstream", "original"),
    [
        (MIRROR, "orders", None, None, "orders"),
        (MIRROR, ".mirror", None, None, ".mirror"),
        (MIRROR, "orders.mirror.mirror", "A", "orders.mirror", "orders"),
        (BOTH_ENDS, "dc1-orders-copy", None, None, "dc1-orders-copy"),
        (BOTH_ENDS, "B.orders", "B", "orders", "orders"),
        (BOTH_ENDS, "B.dc1-orders", "B", "dc1-orders", "dc1-orders"),
        (BOTH_ENDS, "B.dc1-A.dc1-orders-copy-copy", "B", "A.dc1-orders-copy", "orders"),
        (AffixedReplicationPolicy(IDENTITY, "aba", "ba"), "aba", None, None, "aba"),
        (AffixedReplicationPolicy(IdentityReplicationPolicy(), suffix="-x"), "orders-x", None, "orders", "orders"),
    ],
)
def test_a_topic_without_prefix_and_suffix_is_as_the_policy_says(
    policy: AffixedReplicationPolicy, topic: str, source: str | None, upstream: str | None, original: str
) -> None:
    """With names kept it is no remote one; with an alias in its name another flow has mirrored it."""
    found = (policy.topic_source(topic), policy.upstream_topic(topic), policy.original_topic(topic))

    assert found == (source, upstream, original)


@given(_TOPICS, st.sampled_from([".", "_", "--", ""]))
def test_one_hop_back_undoes_one_hop(topic: str, separator: str) -> None:
    """What the default policy names, it takes apart again, unless nothing but separators was named."""
    policy = DefaultReplicationPolicy(separator)
    remote = policy.format_remote_topic("A", topic)

    if topic.replace(separator, ""):
        assert ("A", topic) == (policy.topic_source(remote), policy.upstream_topic(remote))
    assert policy.original_topic(remote) in {policy.original_topic(topic), remote}


def test_which_policy_keeps_names() -> None:
    """The identity policy keeps names and the default one does not."""
    assert keeps_names(IDENTITY, "A")
    assert not keeps_names(DEFAULT, "A")
    assert not keeps_names(MIRROR, "A")
