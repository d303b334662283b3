"""A remote topic lets through what its source took."""

from __future__ import annotations

import pytest

from mm2py.core.topics.configs import (
    AGE,
    AHEAD,
    SIZE,
    ConfigPlan,
    limits_beneath,
    limits_of_brokers,
    plan_configs,
    wider_limits,
)
from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.policy.filters import DefaultConfigPropertyFilter


HOUR, DAY, NO_LIMIT = "3600000", "86400000", str(2**63 - 1)
DIFFERENCE = "message.timestamp.difference.max.ms"
#: MirrorMaker's list, as far as it is about limits.
FILTER = DefaultConfigPropertyFilter.of(
    [DIFFERENCE, "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms"], "target"
)


def default(value: str) -> ConfigEntry:
    return ConfigEntry(value, ConfigSource.DEFAULT)


def own(value: str, beneath: str | None = None) -> ConfigEntry:
    return ConfigEntry(value, ConfigSource.TOPIC, beneath=beneath)


@pytest.mark.parametrize(
    ("source", "beneath", "limits"),
    [
        pytest.param({AHEAD: own(DAY)}, {AHEAD: 3_600_000}, {AHEAD: DAY}, id="wider at the source"),
        pytest.param({AHEAD: default(NO_LIMIT)}, {AHEAD: 3_600_000}, {AHEAD: NO_LIMIT}, id="wider by default there"),
        pytest.param({AHEAD: default(HOUR)}, {AHEAD: 3_600_000}, {}, id="equal"),
        pytest.param({AHEAD: own("5")}, {AHEAD: 3_600_000}, {}, id="narrower at the source"),
        pytest.param({AHEAD: own(DAY)}, {}, {}, id="a target that knows no such limit"),
        pytest.param({}, {AHEAD: 3_600_000}, {}, id="a source that tells none"),
        pytest.param({DIFFERENCE: default(NO_LIMIT)}, {AHEAD: 3_600_000}, {AHEAD: NO_LIMIT}, id="an old source"),
        pytest.param(
            {DIFFERENCE: own(DAY), AHEAD: default(NO_LIMIT)}, {AHEAD: 3_600_000}, {AHEAD: DAY}, id="Kafka 3.6"
        ),
        pytest.param({AGE: own(HOUR)}, {AGE: 3_600_000}, {AGE: NO_LIMIT}, id="records age on their way"),
        pytest.param({AGE: own(HOUR)}, {AGE: 2**63 - 1}, {}, id="no limit on age"),
        pytest.param(
            {SIZE: ConfigEntry("9", ConfigSource.STATIC_BROKER)}, {SIZE: 8}, {SIZE: "9"}, id="a broker's file"
        ),
        pytest.param({SIZE: own("of course not")}, {SIZE: 8}, {}, id="not a number"),
    ],
)
def test_wider_limits(source: dict[str, ConfigEntry], beneath: dict[str, int], limits: dict[str, str]) -> None:
    """What the source lets through counts, wherever it has that from, and nothing is made narrower."""
    assert wider_limits(source, beneath, FILTER) == limits


def test_what_is_excluded_by_its_own_name_is_left_alone() -> None:
    """An operator who names the topic's key decides; a filter of one's own, too."""
    by_name = DefaultConfigPropertyFilter.of([r"message\.timestamp\..*"], "target")

    assert wider_limits({AHEAD: own(DAY), SIZE: own("9")}, {AHEAD: 1, SIZE: 1}, by_name) == {SIZE: "9"}


def test_limits_of_a_topic_without_its_own() -> None:
    """What brokers would have it do counts, not what is set on it."""
    assert limits_beneath({AHEAD: own(DAY, HOUR), SIZE: default("8"), AGE: own("7")}) == {AHEAD: 3_600_000, SIZE: 8}
    assert limits_of_brokers({"message.max.bytes": default("8"), "other": default("9")}) == {SIZE: 8}


REMEMBERED = {AHEAD: (DAY,)}


@pytest.mark.parametrize(
    ("source", "target", "synced", "plan"),
    [
        pytest.param(DAY, default(HOUR), {}, ConfigPlan({AHEAD: DAY}, {AHEAD: (DAY,)}, limits={AHEAD: DAY}), id="new"),
        pytest.param(DAY, own(DAY, HOUR), REMEMBERED, ConfigPlan(), id="done"),
        pytest.param(
            NO_LIMIT,
            own(DAY, HOUR),
            REMEMBERED,
            ConfigPlan({AHEAD: NO_LIMIT}, {AHEAD: (DAY, NO_LIMIT)}, limits={AHEAD: NO_LIMIT}),
            id="follows the source",
        ),
        pytest.param(
            HOUR, own(DAY, HOUR), REMEMBERED, ConfigPlan({AHEAD: None}, {}, frozenset()), id="no longer needed"
        ),
        pytest.param(DAY, own(NO_LIMIT, HOUR), {}, ConfigPlan(), id="wide enough by hand"),
        pytest.param(DAY, own("5", HOUR), {}, ConfigPlan(kept={AHEAD: "5"}), id="narrower by hand, which is told"),
        pytest.param(
            DAY,
            own("5", HOUR),
            REMEMBERED,
            ConfigPlan(forget=frozenset({AHEAD}), kept={AHEAD: "5"}),
            id="taken over by hand",
        ),
    ],
)
def test_limits_follow(source: str, target: ConfigEntry, synced: dict[str, tuple[str, ...]], plan: ConfigPlan) -> None:
    """A limit that the mirror raised is the mirror's, and goes with the source's; one set by hand stays."""
    assert plan_configs({AHEAD: own(source)}, {AHEAD: target}, synced, FILTER) == plan
