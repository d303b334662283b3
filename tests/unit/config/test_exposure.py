"""Files with secrets that other users of the machine may read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.config.connectors import standalone_settings
from mm2py.config.settings import load_settings
from tests.support.config_files import BASE


LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="mm2" password="hush";'
SASL = f"A.security.protocol = SASL_PLAINTEXT\nA.sasl.mechanism = PLAIN\nA.sasl.jaas.config = {LOGIN}\n"


def notes_of(path: Path, text: str, mode: int) -> list[str]:
    """Return the notes about readable files of a configuration file with this mode."""
    path.write_text(BASE + text)
    path.chmod(mode)
    notes = [str(note) for note in load_settings(path).notes]

    assert "hush" not in "".join(notes)
    return [note for note in notes if "may read it" in note]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_readable_file_with_passwords_is_noted(tmp_path: Path, mode: int) -> None:
    """One note has the file, its mode, the keys and the command that mends it; nothing of a value."""
    path = tmp_path / "mm2.properties"
    text = f"{SASL}rest.auth.read.tokens = hush-hush-hush-hush-hush\n"
    keys = "A.sasl.jaas.config, rest.auth.read.tokens"

    assert notes_of(path, text, mode) == [
        f"{path}: other users may read it (mode {mode:04o}), and it contains {keys} (chmod 600 {path})"
    ]
    assert notes_of(path, text, 0o600) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A.security.protocol = SSL\nA.ssl.truststore.type = PEM\nA.ssl.truststore.location = /etc/ca.pem",
        "A.security.protocol = SSL\nA.ssl.truststore.type = PEM\nA.ssl.truststore.certificates = PEM",
        "listeners.https.ssl.client.auth = none",
        "spark.authenticate.secret.file = /etc/spark",
        "config.providers = env\n" + SASL.replace(LOGIN, "${env:MM2PY_LOGIN}"),
    ],
)
def test_a_file_without_secrets_is_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Certificates, paths and references are no secrets."""
    monkeypatch.setenv("MM2PY_LOGIN", LOGIN)

    assert notes_of(tmp_path / "mm2.properties", text, 0o644) == []


def test_readable_files_that_it_names_are_noted(tmp_path: Path) -> None:
    """Files of providers, users and key stores are noted, each once, with the keys that name them."""
    secrets, users, store = (tmp_path / name for name in ("a.secrets", "users", "mm2.p12"))
    for file in (secrets, users, store):
        file.write_text(f"login = {LOGIN}\n" if file is secrets else "")
        file.chmod(0o644)
    (tmp_path / "topics").write_text("topics = orders")
    lines = [
        "config.providers = file, plain",
        "config.providers.plain.class = org.apache.kafka.common.config.provider.FileConfigProvider",
        SASL.replace(LOGIN, f"${{plain:{secrets}:login}}"),
        f"B.ssl.keystore.location = {store}",
        f"rest.auth.users.file = {users}",
        f"topics = ${{file:{tmp_path}/topics:topics}}",
    ]

    def found() -> dict[str, str]:
        notes = notes_of(tmp_path / "mm2.properties", "\n".join(lines), 0o644)
        return {note.partition(":")[0]: note.rpartition(" is named by ")[2].partition(" ")[0] for note in notes}

    assert found() == {
        str(secrets): "A.sasl.jaas.config",
        str(store): "B.ssl.keystore.location",
        str(users): "rest.auth.users.file",
    }
    for file in (secrets, users, store):
        file.chmod(0o600)
    assert found() == {}


def test_imported_files_are_noted_each_for_itself(tmp_path: Path) -> None:
    """The file of a connector that has a password is named with the user's key, the worker's that has none is not."""
    worker, connector = tmp_path / "worker.properties", tmp_path / "source.properties"
    worker.write_text("bootstrap.servers = b:9092\n")
    connector.write_text(
        "name = mm2\nconnector.class = org.apache.kafka.connect.mirror.MirrorSourceConnector\n"
        "source.cluster.alias = A\ntarget.cluster.alias = B\n"
        "source.cluster.bootstrap.servers = a:9092\ntarget.cluster.bootstrap.servers = b:9092\n"
        "source.cluster.security.protocol = SASL_PLAINTEXT\nsource.cluster.sasl.mechanism = PLAIN\n"
        f"source.cluster.sasl.jaas.config = {LOGIN}\n"
    )
    worker.chmod(0o644)
    connector.chmod(0o644)
    settings = standalone_settings(worker, [connector])
    (note,) = [str(note) for note in settings.notes if "may read it" in str(note)]

    assert note.startswith(f"{connector}: ")
    assert "source.cluster.sasl.jaas.config" in note
