"""Values from providers: Kafka's three, those of one's own, and what must not be told of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import attrs
import pytest

from mm2py.config.keys.row import Place
from mm2py.config.keys.table import KEYS
from mm2py.config.render import explain
from mm2py.config.settings import ConfigError, MirrorSettings, load_settings
from mm2py.model.flow import Flow


BASE = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""
_KAFKA_S = "org.apache.kafka.common.config.provider."


@attrs.frozen
class ModelMachine:
    """A machine of files in memory."""

    files: Mapping[str, str] = attrs.field(factory=dict)
    variables: Mapping[str, str] = attrs.field(factory=dict)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path].encode()

    def files_in(self, directory: str) -> Iterable[str]:
        return [path.rpartition("/")[2] for path in self.files if path.rpartition("/")[0] == directory]

    def environment(self) -> Mapping[str, str]:
        return self.variables


_OWNERS = {
    Place.TOP: "",
    Place.FLOW: "A->B.",
    Place.FLOW_ONLY: "A->B.",
    Place.CLUSTER: "A.",
    Place.CONSUMER: "A.",
    Place.ADMIN: "A.",
    Place.WORKER: "B.",
    Place.WORKER_TOP: "B.",
    Place.PRODUCER: "B.",
}
MACHINE = ModelMachine(
    {"/etc/secrets.properties": "topics = orders\ntasks:max = 7\nbad = hush", "/run/pods/topics": "orders, bills"},
    {"TOPICS": "from-env", "TASKS": "3", "SECRET": "hush"},
)


class Vault:
    """A provider of one's own."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._prefix = parameters["prefix"]

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if path == "broken":
            raise RuntimeError("hush")
        return {key: f"{self._prefix}-{path}-{key}" for key in keys}


def _load(tmp_path: Path, lines: str) -> MirrorSettings:
    path = tmp_path / "mm2.properties"
    path.write_text(BASE + lines)
    return load_settings(path, machine=MACHINE)


def _refusal(tmp_path: Path, lines: str) -> str:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, lines)
    return str(caught.value)


@pytest.mark.parametrize(
    ("lines", "topics"),
    [
        ("config.providers = file\nA->B.topics = ${file:/etc/secrets.properties:topics}", ("orders",)),
        (
            (
                f"config.providers = f\nconfig.providers.f.class = {_KAFKA_S}FileConfigProvider\n"
                "A->B.topics = x, ${f:/etc/secrets.properties:topics}-${f:/etc/secrets.properties:topics}"
            ),
            ("x", "orders-orders"),
        ),
        (
            (
                f"config.providers = d\nconfig.providers.d.class = {_KAFKA_S}DirectoryConfigProvider\n"
                "A->B.topics = ${d:/run/pods:topics}"
            ),
            ("orders", "bills"),
        ),
        (
            (
                f"config.providers = e\nconfig.providers.e.class = {_KAFKA_S}EnvVarConfigProvider\n"
                "A->B.topics = ${e:TOPICS}"
            ),
            ("from-env",),
        ),
        (
            (
                "config.providers = v\nconfig.providers.v.class = tests.unit.config.test_references.Vault\n"
                "config.providers.v.param.prefix = p\nA->B.topics = ${v:some/path:key}"
            ),
            ("p-some/path-key",),
        ),
    ],
)
def test_references_are_replaced(tmp_path: Path, lines: str, topics: tuple[str, ...]) -> None:
    """Each provider that the file names gives values, several in one line, and with Kafka's class names."""
    assert _load(tmp_path, lines).flows[0].topics.names == topics


def test_what_names_no_provider_stays_as_it_is(tmp_path: Path) -> None:
    """As in Java, a reference to an unknown provider is text; but it is noted."""
    settings = _load(tmp_path, "A.consumer.client.id = ${env:TOPICS} ${x} $y\nA->B.topics = t")

    assert settings.flows[0].source.client_id == "${env:TOPICS} ${x} $y"
    assert [str(note) for note in settings.notes] == [
        (
            "mm2.properties:5: A.consumer.client.id: ${env:TOPICS} stays as it is: config.providers does not name env "
            "(add config.providers = env)"
        )
    ]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            "config.providers = file\ntopics = ${file:/etc/none:x}",
            "/etc/none cannot be read: No such file or directory",
        ),
        ("config.providers = file\ntopics = ${file:/etc/secrets.properties:x}", "there is no such value"),
        ("config.providers = file\ntopics = ${file:x}", "there is no such value"),
        ("config.providers = env\ntopics = ${env:NOPE}", "there is no such value"),
        ("config.providers = env\ntopics = ${env:some:TOPICS}", "environment variables have no path"),
        (
            "config.providers = env\nconfig.providers.env.param.allowlist.pattern = T.*\ntopics = ${env:SECRET}",
            "there is no such value",
        ),
        (
            "config.providers = env\nconfig.providers.env.param.allowlist.pattern = *\ntopics = ${env:SECRET}",
            "allowlist.pattern: bad regular expression",
        ),
        (
            (
                "config.providers = file\nconfig.providers.file.param.allowed.paths = /var, /opt\n"
                "topics = ${file:/var/../etc/secrets.properties:topics}"
            ),
            "/var/../etc/secrets.properties is outside of allowed.paths",
        ),
        (
            "config.providers = file\nconfig.providers.file.param.allowed.paths = var\ntopics = x",
            "allowed.paths names 'var', which is not absolute",
        ),
        ("config.providers = vault\ntopics = x", "provider vault has no class (add config.providers.vault.class)"),
        (
            "config.providers = v\nconfig.providers.v.class = no.such.Vault\ntopics = x",
            "no.such.Vault cannot be created: ModuleNotFoundError",
        ),
        (
            (
                "config.providers = v\nconfig.providers.v.class = tests.unit.config.test_references.Vault\n"
                "config.providers.v.param.prefix = p\ntopics = ${v:broken:key}"
            ),
            "${v:broken:key}: RuntimeError",
        ),
        (
            "config.providers = file\ntasks.max = ${file:/etc/secrets.properties:bad}",
            "tasks.max: what ${file:/etc/secrets.properties:bad} stands for does not fit",
        ),
        (
            "config.providers = file\nB.bootstrap.servers = ${file:/etc/secrets.properties:bad}",
            "B.bootstrap.servers: what ${file:/etc/secrets.properties:bad} stands for does not fit",
        ),
    ],
)
def test_a_reference_that_gives_nothing_is_a_problem(tmp_path: Path, lines: str, reason: str) -> None:
    """Java goes on with the text of the reference, for example as a password; here it is said, and nothing starts."""
    refusal = _refusal(tmp_path, lines)

    assert reason in refusal
    assert "hush" not in refusal


def test_a_number_may_come_from_a_provider(tmp_path: Path) -> None:
    """The value is read as if it had been written there."""
    assert _load(tmp_path, "config.providers = env\ntasks.max = ${env:TASKS}").flows[0].copying.tasks_max == 3


def test_clusters_may_come_from_a_provider(tmp_path: Path) -> None:
    """As in Java, the list of clusters and what enables a flow are resolved, too."""
    path = tmp_path / "mm2.properties"
    path.write_text("config.providers = env\nclusters = ${env:C}\nbootstrap.servers = x:1\nA->B.enabled = ${env:ON}\n")
    settings = load_settings(path, machine=ModelMachine(variables={"C": "A, B", "ON": "true"}))

    assert [str(flow.flow) for flow in settings.flows if flow.is_enabled] == ["A->B"]


def test_values_of_providers_are_shown_as_references(tmp_path: Path) -> None:
    """The effective configuration says where a value comes from, never what it is."""
    settings = _load(tmp_path, "config.providers = env\nA.consumer.client.id = ${env:SECRET}")
    (row,) = [row for row in explain(settings, Flow("A", "B")) if row.key == "consumer.client.id"]

    assert settings.flows[0].source.client_id == "hush"
    assert row.value == "${env:SECRET}"
    assert "hush" not in repr(settings.effective) + repr(settings.notes)


def test_no_key_shows_what_a_provider_gave(tmp_path: Path) -> None:
    """For any key: not in a problem where it does not fit, nor in a note or explained where it does."""
    keys = {
        f"{_OWNERS[key.place]}{key.full_name.replace('*', 'x')}": key
        for key in KEYS
        if key.name not in {"clusters", "enabled"} and not key.name.startswith("config.providers")
    }
    machine = ModelMachine(variables={"HUSH": "hushhush ("})
    path = tmp_path / "mm2.properties"

    def load(names: Iterable[str]) -> MirrorSettings:
        path.write_text(f"{BASE}config.providers = env\n" + "".join(f"{name} = ${{env:HUSH}}\n" for name in names))
        return load_settings(path, machine=machine)

    with pytest.raises(ConfigError) as caught:
        load(keys)
    problems = caught.value.problems
    loaded = load(set(keys) - {problem.key for problem in problems} - {"A.security.protocol"})
    rows = [row for flow in loaded.flows for row in explain(loaded, flow.flow)]

    assert len(problems) > 50
    assert "hushhush" not in "".join(map(str, (*problems, *loaded.notes, *rows)))
    assert sum("${env:HUSH}" in row.value for row in rows) > 50


def test_this_machine_is_read_where_nothing_else_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, folders and variables of the machine itself."""
    (tmp_path / "s.properties").write_text("t = one")
    (tmp_path / "two").write_text("two")
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("MM2PY_TEST_TOPIC", "three")
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"{BASE}config.providers = file, dir, env\n"
        f"topics = ${{file:{tmp_path}/s.properties:t}}, ${{dir:{tmp_path}:two}}, ${{env:MM2PY_TEST_TOPIC}}"
    )

    assert load_settings(path).flows[0].topics.names == ("one", "two", "three")
