"""Programs of Debian's: what is there is taken, what cannot be got is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import debian
from tests.support.commands import fake_program
from tests.support.debian import ProgramMissingError, debian_program


def test_a_program_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on the path needs no installation, whichever of its names it has."""
    monkeypatch.setenv("PATH", str(tmp_path))
    there = fake_program(tmp_path, "mm2py-sample-2")

    assert debian_program("mm2py-no-such-package", "mm2py-sample-1", "mm2py-sample-2") == there


def test_a_machine_without_apt_get_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be installed, the message names the package."""
    monkeypatch.setenv("MM2PY_CACHE", str(tmp_path))
    monkeypatch.setattr(debian.shutil, "which", lambda *_names, **_options: None)

    with pytest.raises(ProgramMissingError, match="install --no-install-recommends mm2py-no-such-package"):
        debian_program("mm2py-no-such-package")


def test_a_package_that_cannot_be_installed_is_told_with_apt_get_s_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What apt-get had to say is in the message."""
    fake_program(tmp_path, "apt-get", "echo E: no such package >&2\nexit 100")
    monkeypatch.setenv("MM2PY_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(debian, "_root", list)

    with pytest.raises(ProgramMissingError, match="E: no such package"):
        debian_program("mm2py-no-such-package")
