"""Values from providers: Kafka's three, those of one's own, and what must not be told of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import attrs
import pytest

from mm2py.config.keys.row import Place
from mm2py.config.keys.table import KEYS
from mm2py.config.problem import ConfigError
from mm2py.config.providers import Stamp
from mm2py.config.render import explain
from tests.support.config_files import ConfigFile


_KAFKA_S = "org.apache.kafka.common.config.provider."


@attrs.frozen
class ModelMachine:
    """A machine of files in memory."""

    files: Mapping[str, str] = attrs.field(factory=dict)
    variables: Mapping[str, str] = attrs.field(factory=dict)
    modes: Mapping[str, int] = attrs.field(factory=dict)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path].encode()

    def files_in(self, directory: str) -> Iterable[str]:
        return [path.rpartition("/")[2] for path in self.files if path.rpartition("/")[0] == directory]

    def environment(self) -> Mapping[str, str]:
        return self.variables

    def exposed_mode(self, path: str) -> int | None:
        return self.modes.get(path)

    def stamp(self, path: str) -> Stamp:
        return (0, len(self.files[path]), 0) if path in self.files else None


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


def _named(name: str, path: str) -> str:
    return f"config.providers = {name}\nconfig.providers.{name}.class = {path}\n"


_FILE, _ENV = "config.providers = file\n", "config.providers = env\n"
_VAULT = _named("v", f"{__name__}.Vault") + "config.providers.v.param.prefix = p\n"


@pytest.mark.parametrize(
    ("providers", "topics", "expected"),
    [
        (_FILE, "${file:/etc/secrets.properties:topics}", ("orders",)),
        (
            _named("f", f"{_KAFKA_S}FileConfigProvider"),
            "x, ${f:/etc/secrets.properties:topics}-${f:/etc/secrets.properties:topics}",
            ("x", "orders-orders"),
        ),
        (_named("d", f"{_KAFKA_S}DirectoryConfigProvider"), "${d:/run/pods:topics}", ("orders", "bills")),
        (_named("e", f"{_KAFKA_S}EnvVarConfigProvider"), "${e:TOPICS}", ("from-env",)),
        (_VAULT, "${v:some/path:key}", ("p-some/path-key",)),
    ],
)
def test_references_are_replaced(config: ConfigFile, providers: str, topics: str, expected: tuple[str, ...]) -> None:
    """Each provider that the file names gives values, several in one line, and with Kafka's class names."""
    assert config.flow(f"{providers}A->B.topics = {topics}", machine=MACHINE).source_connector.topics.names == expected


def test_what_names_no_provider_stays_as_it_is(config: ConfigFile) -> None:
    """As in Java, a reference to an unknown provider is text; but it is noted. Spark has references of its own."""
    settings = config.load(
        "A.consumer.client.id = ${vault:TOPICS} ${x} $y\nA->B.topics = t\nspark.x = ${env:HOME}", machine=MACHINE
    )

    assert settings.flows[0].source.client_id == "${vault:TOPICS} ${x} $y"
    assert settings.spark["spark.x"] == "${env:HOME}"
    assert [str(note) for note in settings.notes] == [
        "mm2.properties:5: A.consumer.client.id: ${vault:TOPICS} stays as it is: config.providers does not name vault"
    ]


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ("", "add config.providers = env"),
        ("config.providers = file, v\n", "add config.providers = file, v, env"),
    ],
)
def test_a_built_in_provider_has_to_be_named_first(config: ConfigFile, lines: str, hint: str) -> None:
    """Java would log in with the text of the reference as a password."""
    (problem,) = config.problems(f"{lines}A.consumer.client.id = ${{env:TOPICS}}", machine=MACHINE)

    assert (problem.message, problem.hint) == (
        "${env:TOPICS} stays as it is: config.providers does not name env",
        hint,
    )


@pytest.mark.parametrize(
    "lines",
    [
        "config.providers = vault\n",
        _named("v", "no.such.Vault"),
        _named("secrets", "io.strimzi.kafka.KubernetesSecretConfigProvider"),
        "config.providers = file\nconfig.providers.file.param.allowed.paths = var\n",
    ],
)
def test_a_provider_that_nothing_refers_to_stops_nothing(config: ConfigFile, lines: str) -> None:
    """Operators of clusters name them all in each file."""
    assert config.load(f"{lines}topics = x", machine=MACHINE).notes == ()


@pytest.mark.parametrize(
    ("class_name", "reference", "expected"),
    [
        ("org.apache.kafka.common.config.provider.EnvVarConfigProvider", "${p:TOPICS}", ("from-env",)),
        ("io.strimzi.kafka.EnvVarConfigProvider", "${p:TOPICS}", ("from-env",)),
        (
            "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
            "${p:/run/pods:topics}",
            ("orders", "bills"),
        ),
        (
            "org.apache.kafka.common.config.provider.FileConfigProvider",
            "${p:/etc/secrets.properties:topics}",
            ("orders",),
        ),
        (
            "io.strimzi.kafka.KubernetesSecretConfigProvider",
            "${p:my-namespace/my-secret:topics}",
            (
                "${p:my-namespace/my-secret:topics}: Kubernetes is not asked for values; mount my-secret as a volume, "
                "add config.providers = dir, and write ${dir:/path/of/the/volume:topics}"
            ),
        ),
        (
            "io.strimzi.kafka.KubernetesConfigMapConfigProvider",
            "${p:my-map:topics}",
            (
                "${p:my-map:topics}: Kubernetes is not asked for values; mount my-map as a volume, add "
                "config.providers = dir, and write ${dir:/path/of/the/volume:topics}"
            ),
        ),
    ],
)
def test_strimzi_s_providers(
    config: ConfigFile, class_name: str, reference: str, expected: tuple[str, ...] | str
) -> None:
    """Those of Strimzi's images: what needs no Kubernetes works, a reference to the others says what to write."""
    lines = f"{_named('p', class_name)}A->B.topics = {reference}"
    if isinstance(expected, tuple):
        assert config.flow(lines, machine=MACHINE).source_connector.topics.names == expected
    else:
        assert [(it.where, it.message) for it in config.problems(lines, machine=MACHINE)] == [
            ("mm2.properties:7", expected)
        ]


def test_a_provider_that_cannot_be_used_is_named_once(config: ConfigFile) -> None:
    """No note beside it says that the file does not name it."""
    with pytest.raises(ConfigError) as caught:
        config.load(_named("v", "com.example.Vault") + "topics = ${v:x}\nA->B.groups = ${v:y}", machine=MACHINE)

    assert [problem.where for problem in caught.value.problems] == ["mm2.properties:6"]
    assert caught.value.notes == ()


_PATHS, _ALLOWED = "config.providers.file.param.allowed.paths", "config.providers.env.param.allowlist.pattern"
_BAD = "${file:/etc/secrets.properties:bad}"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (f"{_FILE}topics = ${{file:/etc/none:x}}", "/etc/none cannot be read: No such file or directory"),
        (f"{_FILE}topics = ${{file:/etc/secrets.properties:x}}", "there is no such value"),
        (f"{_FILE}topics = ${{file:x}}", "there is no such value"),
        (f"{_ENV}topics = ${{env:NOPE}}", "there is no such value"),
        (f"{_ENV}topics = ${{env:some:TOPICS}}", "environment variables have no path"),
        (f"{_ENV}{_ALLOWED} = T.*\ntopics = ${{env:SECRET}}", "there is no such value"),
        (f"{_ENV}{_ALLOWED} = *\ntopics = ${{env:SECRET}}", "allowlist.pattern: bad regular expression"),
        (
            f"{_FILE}{_PATHS} = /var, /opt\ntopics = ${{file:/var/../etc/secrets.properties:topics}}",
            "/var/../etc/secrets.properties is outside of allowed.paths",
        ),
        (f"{_FILE}{_PATHS} = var\ntopics = {_BAD}", "allowed.paths names 'var', which is not absolute"),
        (
            "config.providers = vault\ntopics = ${vault:x}",
            "provider vault has no class (add config.providers.vault.class)",
        ),
        (_named("v", "no.such.Vault") + "topics = ${v:x}", "no.such.Vault cannot be created: ModuleNotFoundError"),
        (
            _named("v", "com.example.SecretsProvider") + "topics = ${v:x}",
            "com.example.SecretsProvider: a Java class cannot be used here; name a Python class, see mm2py docs config",
        ),
        (f"{_VAULT}topics = ${{v:broken:key}}", "${v:broken:key}: RuntimeError"),
        (f"{_FILE}tasks.max = {_BAD}", f"tasks.max: the value of {_BAD} is invalid here"),
        (f"{_FILE}B.bootstrap.servers = {_BAD}", f"B.bootstrap.servers: the value of {_BAD} is invalid here"),
    ],
)
def test_a_reference_that_gives_nothing_is_a_problem(config: ConfigFile, lines: str, reason: str) -> None:
    """Java goes on with the text of the reference, for example as a password; here it is said, and nothing starts."""
    refusal = "\n".join(config.refusals(lines, machine=MACHINE))

    assert reason in refusal
    assert "hush" not in refusal


def test_a_number_may_come_from_a_provider(config: ConfigFile) -> None:
    """The value is read as if it had been written there."""
    assert (
        config.flow(
            "config.providers = env\ntasks.max = ${env:TASKS}", machine=MACHINE
        ).source_connector.copying.tasks_max
        == 3
    )


def test_clusters_may_come_from_a_provider(config: ConfigFile) -> None:
    """As in Java, the list of clusters and what enables a flow are resolved, too."""
    machine = ModelMachine(variables={"C": "A, B", "ON": "true"})
    settings = config.load(
        "config.providers = env\nclusters = ${env:C}\nbootstrap.servers = x:1\nA->B.enabled = ${env:ON}\n",
        base="",
        machine=machine,
    )

    assert [str(flow.flow) for flow in settings.flows if flow.is_enabled] == ["A->B"]


def test_no_key_shows_what_a_provider_gave(config: ConfigFile) -> None:
    """For any key: not in a problem where it does not fit, nor in a note or explained where it does."""
    keys = {
        f"{_OWNERS[key.place]}{key.full_name.replace('*', 'x')}": key
        for key in KEYS
        if key.name not in {"clusters", "enabled"} and not key.name.startswith("config.providers")
    }
    machine = ModelMachine(variables={"HUSH": "hushhush ("})

    def hushed(names: Iterable[str]) -> str:
        return "config.providers = env\n" + "".join(f"{name} = ${{env:HUSH}}\n" for name in names)

    problems = config.problems(hushed(keys), machine=machine)
    sound = set(keys) - {problem.key for problem in problems} - {"A.security.protocol"}
    loaded = config.load(hushed(sound), machine=machine)
    rows = [row for flow in loaded.flows for row in explain(loaded, flow.flow)]

    assert len(problems) > 50
    assert "hushhush" not in "".join(map(str, (*problems, *loaded.notes, *rows)))
    assert sum("${env:HUSH}" in row.value for row in rows) > 50


def test_this_machine_is_read_where_nothing_else_is_said(
    config: ConfigFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, folders and variables of the machine itself."""
    (tmp_path / "s.properties").write_text("t = one")
    (tmp_path / "two").write_text("two")
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("MM2PY_TEST_TOPIC", "three")
    settings = config.load(
        "config.providers = file, dir, env",
        f"topics = ${{file:{tmp_path}/s.properties:t}}, ${{dir:{tmp_path}:two}}, ${{env:MM2PY_TEST_TOPIC}}",
    )

    assert settings.flows[0].source_connector.topics.names == ("one", "two", "three")
