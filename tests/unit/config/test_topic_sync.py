"""Settings of how configs and ACLs of remote topics are kept in step, and of their replication factor."""

from __future__ import annotations

import pytest

from mm2py.config.connector import TopicSyncSettings
from mm2py.config.settings import ConfigError
from tests.support.config_files import ConfigFile


def test_every_key_reaches_its_setting(config: ConfigFile) -> None:
    """Each key is set to a value of its own and found where it belongs, the old name of a list too."""
    flow = config.flow(
        r"""
config.properties.blacklist = retention\\..*, segment.ms
config.property.filter.class = shop.ConfigFilter
A->B.use.defaults.from = source
sync.topic.configs.enabled = false
sync.topic.configs.interval.seconds = 1
A->B.sync.topic.configs.by.hand = overwrite
sync.topic.acls.enabled = false
A->B.sync.topic.acls.interval.seconds = 2
sync.topic.acls.delete.enabled = true
sync.topic.acls.prefixed.enabled = true
""",
    )

    assert flow.source_connector.topic_sync == TopicSyncSettings(
        configs_exclude=(r"retention\..*", "segment.ms"),
        config_filter_class="shop.ConfigFilter",
        use_defaults_from="source",
        configs_enabled=False,
        configs_interval_s=1.0,
        configs_overwrite=True,
        acls_enabled=False,
        acls_interval_s=2.0,
        acls_delete=True,
        acls_prefixed=True,
    )


@pytest.mark.parametrize(
    ("text", "factor"), [("3", 3), ("-1", -1), ("source", None), (" source ", None), ("+2", 2), ("", 2)]
)
def test_replication_factor(config: ConfigFile, text: str, factor: int | None) -> None:
    """A number, -1 for the brokers' default, or the word for the source topic's own."""
    lines = f"replication.factor = {text}\n" if text else ""

    assert config.flow(lines).source_connector.topics.replication_factor == factor


@pytest.mark.parametrize("text", ["0", "-2", "target", "2.5", ""])
def test_a_replication_factor_that_no_topic_can_have(config: ConfigFile, text: str) -> None:
    """What no topic can be created with is refused at the start."""
    with pytest.raises(ConfigError, match=r"mm2.properties:5: replication.factor: must be"):
        config.flow(f"replication.factor = {text}\n")
