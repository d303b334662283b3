"""Configs and ACLs of remote topics under the command as a user runs it, killed and started again."""

from __future__ import annotations

from pathlib import Path

from mm2py.model.acl import Operation
from tests.support.brokers import authorized_clusters
from tests.support.daemon import daemon
from tests.support.eventually import eventually
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_numbers
from tests.support.syncs import allow, grant, own_configs, revoke, set_configs, topic_acls
from tests.support.topics import create_topic


async def _becomes(target: str, remote: str, configs: dict[str, str], principals: set[str]) -> None:
    """Wait until a remote topic has exactly these configs of its own and these readers."""

    async def has_become() -> bool:
        assert await own_configs(target, remote) == configs
        assert {acl.principal for acl in await topic_acls(target, under=remote)} == principals
        return True

    await eventually(has_become, within_s=60, what=f"{remote} has {configs}, read by {principals}", every_s=0.3)


async def test_configs_and_acls_across_a_kill(prefix: str, tmp_path: Path) -> None:
    """
    A config changed at the source arrives, one set by hand at the target stays, a deleted one goes; readers follow.

    The daemon is killed in between, and the next one still knows which of it was the mirror's.
    """
    with authorized_clusters() as clusters:
        source, target = (clusters[name].bootstrap_servers for name in ("source", "target"))
        remote = f"A.{prefix}"
        keys = {
            "A->B.topics": f"{prefix}.*",
            "copy.epoch.ms": 1000,
            "sync.topic.configs.interval.seconds": 1,
            "sync.topic.acls.interval.seconds": 1,
            "sync.topic.acls.delete.enabled": "true",
            "emit.heartbeats.enabled": "false",
        }
        settings = mm2_properties(source, target, **keys)
        await create_topic(source, prefix, configs={"delete.retention.ms": "1000000", "segment.ms": "700000"})
        await produce_numbers(source, prefix, count=100, partitions=1)
        await grant(source, [allow(prefix, "early", Operation.ALL), allow(prefix, "both", Operation.READ)])
        async with daemon(tmp_path, settings) as first:
            await _becomes(
                target, remote, {"delete.retention.ms": "1000000", "segment.ms": "700000"}, {"User:early", "User:both"}
            )
            await set_configs(source, prefix, delete_retention_ms="2000000", max_message_bytes="2000000")
            await set_configs(target, remote, segment_ms="800000")
            await first.wait_for_event("topic_configs_kept", remote_topic=remote)
        await set_configs(source, prefix, delete_retention_ms=None, segment_ms="900000", max_message_bytes="3000000")
        await revoke(source, [allow(prefix, "early", Operation.ALL)])
        await grant(source, [allow(prefix, "late", Operation.DESCRIBE)])
        async with daemon(tmp_path, settings) as second:
            await _becomes(
                target, remote, {"segment.ms": "800000", "max.message.bytes": "3000000"}, {"User:both", "User:late"}
            )
            await await_arrived(target, remote, 100)

            assert not list(second.events("topic_sync_failed"))
            assert not list(second.events("step_failed"))
