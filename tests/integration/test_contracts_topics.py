"""What brokers answer about topics and their configs, asked of a real one and of the simulated one."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.admin import (
    CreatePartitionsRequest_v1,
    DeleteTopicsRequest_v1,
    DescribeAclsRequest_v1,
    DescribeConfigsRequest_v2,
)

from mm2py.wire.requests import CreateTopicsRequest_v4, MetadataRequest_v7, MetadataRequest_v9, MetadataRequest_v11
from mm2py.wire.topics.configs import IncrementalAlterConfigsRequest_v0
from tests.support.contracts import Side, contract


TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
#: What a topic's own configs come from; brokers list all others with their defaults.
_OF_TOPIC = 1
_TESTS_OWN = ("max.message.bytes", "segment.ms", "min.insync.replicas")


def create(
    *topics: tuple[str, int, int, dict[str, str]], is_trial: bool = False, replicas: Any = ()
) -> CreateTopicsRequest_v4:
    rows = [(name, count, factor, list(replicas), list(configs.items())) for name, count, factor, configs in topics]
    return CreateTopicsRequest_v4(rows, 30_000, is_trial)


@contract
async def test_topics_are_created(it: Side) -> None:
    """One by one: what is wrong with one is no matter of the others."""
    name = it.prefix
    await it.ask(
        create(
            (f"{name}-a", 3, 1, {"cleanup.policy": "compact"}),
            (f"{name}-b", -1, -1, {}),
            (f"{name}-none", 0, 1, {}),
            (f"{name}-few", -2, 1, {}),
            (f"{name}-factor", 1, 2, {}),
            (f"{name}-factor-0", 1, 0, {}),
            (f"{name}-config", 1, 1, {"cleanup.policy": "nonsense"}),
            (f"{name}-key", 1, 1, {"no.such.key": "1"}),
            (f"{name} space", 1, 1, {}),
            ("", 1, 1, {}),
            (".", 1, 1, {}),
            ("x" * 250, 1, 1, {}),
        )
    )
    await it.ask(create((f"{name}-a", 1, 1, {})))
    await it.ask(create((f"{name}-a", 1, 1, {}), (f"{name}-trial", 2, 1, {}), is_trial=True))
    await it.ask(create((f"{name}-twice", 1, 1, {}), (f"{name}-twice", 1, 1, {})))
    names = [(f"{name}-{end}", {}) for end in ("a", "b", "none", "trial", "twice")]
    await it.read(MetadataRequest_v9(names, False, False, False, {}))


@contract
async def test_topics_whose_names_collide(it: Side) -> None:
    """Dots and underscores are the same in metrics, so that a second name like it is refused."""
    await it.ask(create((f"{it.prefix}.a", 1, 1, {})))
    await it.ask(create((f"{it.prefix}_a", 1, 1, {})))


@contract
async def test_metadata(it: Side) -> None:
    """A topic has an id from version 11 on; there is none of a name that no topic has, nor of an impossible one."""
    await it.known(it.prefix, 3)
    names = [it.prefix, f"{it.prefix}-gone", f"{it.prefix} space", ""]
    await it.ask(MetadataRequest_v7(names, False))
    await it.ask(MetadataRequest_v9([(name, {}) for name in names], False, False, False, {}))
    await it.ask(MetadataRequest_v11([(None, name, {}) for name in names], False, False, {}))
    await it.ask(MetadataRequest_v11([], False, False, {}))
    await it.ask(MetadataRequest_v9([(it.prefix, {})], False, True, True, {}))


@contract
async def test_partitions_are_added(it: Side) -> None:
    """There can only be more of them."""
    await it.known(it.prefix, 2)
    for count in (1, 2, 0, -1, 4):
        await it.ask(CreatePartitionsRequest_v1([(it.prefix, (count, None))], 30_000, False))
    await it.ask(CreatePartitionsRequest_v1([(f"{it.prefix}-gone", (4, None))], 30_000, False))
    await it.ask(CreatePartitionsRequest_v1([(it.prefix, (6, None))], 30_000, True))
    await it.read(MetadataRequest_v9([(it.prefix, {})], False, False, False, {}))


@contract
async def test_topics_are_deleted_and_created_again(it: Side) -> None:
    """The second has another id."""
    first = await it.known(it.prefix)
    await it.ask(DeleteTopicsRequest_v1([it.prefix, f"{it.prefix}-gone"], 30_000))
    await it.read(MetadataRequest_v9([(it.prefix, {})], False, False, False, {}))
    second = await it.known(it.prefix, 2)

    assert first != second


def _own(answer: Any) -> Any:
    """Return the codes of an answer, and the configs that were set."""
    return [
        (code, bool(text), kind, name, sorted((key, value, source) for key, value, _, source, *_ in found
         if source == _OF_TOPIC))
        for code, text, kind, name, found in answer.resources
    ]  # fmt: skip


def _named(answer: Any) -> Any:
    """Return all configs, but for those that the tests' brokers have other defaults of."""
    return [
        (code, name, sorted(entry[:5] for entry in found if entry[0] not in _TESTS_OWN))
        for code, _, _, name, found in answer.resources
    ]


@contract
async def test_configs_are_described(it: Side) -> None:
    """Those that were set for a topic are its own, of the others the default is told."""
    await it.ask(create((it.prefix, 1, 1, {"cleanup.policy": "compact", "retention.ms": "1000"})))
    await it.read(MetadataRequest_v9([(it.prefix, {})], False, False, False, {}))
    await it.read(DescribeConfigsRequest_v2([(TOPIC, it.prefix, None)], False), notes=_own)
    await it.read(DescribeConfigsRequest_v2([(TOPIC, f"{it.prefix}-gone", None)], False), notes=_own)
    some = ["cleanup.policy", "retention.ms", "no.such.key"]
    await it.read(DescribeConfigsRequest_v2([(TOPIC, it.prefix, some)], False), notes=_named)
    await it.read(DescribeConfigsRequest_v2([(TOPIC, it.prefix, [])], False), notes=_named)


@contract
async def test_configs_are_altered(it: Side) -> None:
    """Each resource for itself, all of its keys or none."""
    await it.ask(create((it.prefix, 1, 1, {"retention.ms": "1000", "cleanup.policy": "delete"})))
    await it.read(MetadataRequest_v9([(it.prefix, {})], False, False, False, {}))
    for changes in (
        [("segment.ms", SET, "5000"), ("retention.ms", DELETE, None)],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("retention.ms", APPEND, "7")],
        [("retention.ms", SET, "much"), ("segment.ms", SET, "6000")],
        [("no.such.key", SET, "1")],
        [("retention.ms", DELETE, None)],
        [("retention.ms", SET, None)],
        [("segment.ms", SET, "7000"), ("segment.ms", DELETE, None)],
        [],
    ):
        await it.ask(IncrementalAlterConfigsRequest_v0([(TOPIC, it.prefix, changes)], False))
        await it.read(DescribeConfigsRequest_v2([(TOPIC, it.prefix, None)], False), notes=_own)
    gone = (TOPIC, f"{it.prefix}-gone", [("segment.ms", SET, "5000")])
    await it.ask(IncrementalAlterConfigsRequest_v0([(TOPIC, it.prefix, [("segment.ms", SET, "9000")]), gone], False))
    await it.ask(IncrementalAlterConfigsRequest_v0([(TOPIC, it.prefix, [("segment.ms", SET, "8000")])], True))
    await it.read(DescribeConfigsRequest_v2([(TOPIC, it.prefix, None)], False), notes=_own)


@contract
async def test_acls_of_a_cluster_without_an_authorizer(it: Side) -> None:
    """Nothing is said of them but that."""
    await it.ask(DescribeAclsRequest_v1(1, None, 1, None, None, 1, 1))
