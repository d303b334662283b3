"""The documentation and the sample file are kept in step with the key table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mm2py.config.keys.row import Place
from mm2py.config.keys.table import KEYS
from mm2py.config.render import explain, render_reference
from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.model.flow import Flow


ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "etc" / "mm2.properties"


@pytest.fixture
def uncommented(tmp_path: Path) -> Path:
    """Return the sample file with every commented key set."""
    path = tmp_path / "mm2.properties"
    path.write_text(re.sub(r"(?m)^#(?=[A-Za-z]\S* = )", "", SAMPLE.read_text()))
    path.chmod(0o600)  # it has passwords
    return path


def test_the_reference_is_in_step_with_the_table() -> None:
    """docs/config.md has the keys as the table has them: ``python -m mm2py.config.render docs/config.md``."""
    page = (ROOT / "docs" / "config.md").read_text()

    assert page == render_reference(page)
    rows = [line.partition(" |")[0] for line in page.splitlines() if line.startswith("| `")]
    assert {key.full_name for key in KEYS} <= {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_settings_that_pages_name_are_settings() -> None:
    """A page that tells an operator to set something names a key of the table."""
    known = {name for key in KEYS for name in (key.full_name, key.name, *key.aliases)}
    own = "copy|sync|emit|refresh|catch|replication|metrics|exactly|errors"
    named = re.compile(rf"`(?:[AB](?:->B)?\.)?((?:{own})\.[a-z.-]+[a-z])(?: = [^`]*)?`")
    pages = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md") if page.name != "config.md"}
    found = {(name, key) for name, text in pages.items() for key in named.findall(text)}

    assert len(found) > 50
    assert {(name, key) for name, key in found if key not in known} == set()


def test_the_sample_runs_as_it_is() -> None:
    """The sample file mirrors A to B, without a problem or a note."""
    settings = load_settings(SAMPLE)

    assert [flow.flow for flow in settings.flows if flow.is_enabled] == [Flow("A", "B")]
    assert settings.notes == ()


def test_every_key_in_the_sample_is_good(uncommented: Path) -> None:
    """With every commented key set, the sample still has neither problems nor notes."""
    settings = load_settings(uncommented)

    assert settings.notes == ()
    assert len([flow for flow in settings.flows if flow.is_enabled]) == 2


def test_the_sample_shows_every_key_with_effect(uncommented: Path) -> None:
    """Whatever mm2py acts on can be found in the sample."""
    settings = load_settings(uncommented)
    shown = {row.key for row in settings.effective if row.origin != "default"}
    # Rows of clusters are explained once for each side of a flow.
    wanted = {
        f"source.{key.name}" if key.place is Place.CLUSTER else key.full_name
        for key in KEYS
        if key.acts and key.stem is None
    }
    # The last one has its effect by being empty.
    left_at_default = {"emit.heartbeats.enabled", "enabled", "source.ssl.endpoint.identification.algorithm"}

    assert wanted - shown - left_at_default == set()


@pytest.fixture
def settings(tmp_path: Path) -> MirrorSettings:
    """Return settings with values of every origin, secrets among them."""
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\n"
        "A.bootstrap.servers = a:1\n"
        "bootstrap.servers = b:1\n"
        "A->B.enabled = true\n"
        "emit.heartbeats.enabled = false\n"
        "tasks.max = 3\n"
        "A->B.tasks.max = 5\n"
        "A.consumer.fetch.min.bytes = 7\n"
        "A.ssl.keystore.password = hush\n"
        "sasl.jaas.config = hush\n"
        "spark.ssl.keyPassword = hush\n"
        "A->B.transforms.x.secret = hush\n"
        "spark.executor.memory = 1g\n"
    )
    return load_settings(path, overrides={"copy.epoch.ms": "700"})


@pytest.mark.parametrize(
    ("key", "value", "origin"),
    [
        ("tasks.max", "5", "mm2.properties:7, A->B.tasks.max"),
        ("emit.heartbeats.enabled", "false", "mm2.properties:5, emit.heartbeats.enabled"),
        ("consumer.fetch.min.bytes", "7", "mm2.properties:8, A.consumer.fetch.min.bytes"),
        ("producer.max.request.size", "1048576", "default"),
        ("copy.epoch.ms", "700", "--override, copy.epoch.ms"),
        ("source.bootstrap.servers", "a:1", "mm2.properties:2, A.bootstrap.servers"),
        ("target.bootstrap.servers", "b:1", "mm2.properties:3, bootstrap.servers"),
    ],
)
def test_every_value_knows_its_origin(settings: MirrorSettings, key: str, value: str, origin: str) -> None:
    """The effective configuration of a flow names the line each value came from."""
    (row,) = [row for row in explain(settings, Flow("A", "B")) if row.key == key]

    assert (value, origin) == (row.value, row.origin)


def test_the_process_has_values_of_its_own(settings: MirrorSettings) -> None:
    """What belongs to no flow is explained apart."""
    rows = {row.key: row.value for row in explain(settings)}

    assert rows["clusters"] == "A, B"
    assert rows["spark.executor.memory"] == "1g"
    assert "tasks.max" not in rows


def test_secrets_are_masked(settings: MirrorSettings) -> None:
    """No effective value and no repr of settings shows a secret."""
    masked = {row.key for row in settings.effective if row.value == "***"}

    assert "hush" not in repr(settings) + repr(settings.effective)
    assert {
        "source.ssl.keystore.password",
        "source.sasl.jaas.config",
        "spark.ssl.keyPassword",
        "transforms.x.secret",
    } <= masked
