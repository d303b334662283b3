"""What is remembered of configs and ACLs, as records."""

from __future__ import annotations

import pytest

from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.synced import (
    ForgottenAcl,
    ForgottenConfig,
    Synced,
    SyncedAcl,
    SyncedConfig,
    decode_synced,
    encode_synced,
    synced_topic,
)
from mm2py.policy.replication import DefaultReplicationPolicy


ACL = TopicAcl("A.t", PatternType.PREFIXED, "User:ü", "10.0.0.1", Operation.READ, Permission.DENY)


@pytest.mark.parametrize(
    "entry",
    [
        SyncedConfig("A.t", "retention.ms", ("1", "2")),
        SyncedConfig("A.t", "cleanup.policy", ("",)),
        ForgottenConfig("A.t", "retention.ms"),
        SyncedAcl(ACL),
        ForgottenAcl(ACL),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_round_trip(entry: Synced) -> None:
    """What is written is read again."""
    assert entry == decode_synced(*encode_synced(entry))


def test_bytes() -> None:
    """The records are these bytes; a change of them would forget everything."""
    assert encode_synced(SyncedConfig("A.t", "k", ("v",))) == (b'["config","A.t","k"]', b'{"values":["v"]}')
    assert encode_synced(SyncedAcl(ACL))[0] == '["acl","A.t","User:ü","10.0.0.1","PREFIXED","DENY","READ"]'.encode()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"no json", b"{}"),
        (b"[]", b"{}"),
        (b'["config","A.t"]', b'{"values":["v"]}'),
        (b'["config","A.t",3]', b'{"values":["v"]}'),
        (b'["config","A.t","k"]', b"{}"),
        (b'["acl","A.t","User:u","*","LITERAL","ALLOW","FLY"]', b"{}"),
    ],
)
def test_strange_records_are_unreadable(key: bytes | None, value: bytes) -> None:
    """A record that cannot be what its key says is none, and says why."""
    assert isinstance(decode_synced(key, value), UnreadableRecord)


def test_another_kind_means_nothing() -> None:
    """What a newer version remembers is passed over in silence."""
    assert decode_synced(b'["quota","A.t"]', b"{}") is None


def test_the_topic_is_internal() -> None:
    """No mirror copies the memory of another."""
    assert DefaultReplicationPolicy().is_internal_topic(synced_topic("A"))
