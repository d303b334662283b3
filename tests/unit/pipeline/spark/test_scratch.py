"""The daemon's private directory, and what becomes of those whose daemons were killed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from mm2py.pipeline.spark.scratch import NoScratchError, Scratch
from mm2py.pipeline.spark.sealing import check_key_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_goes_with_its_owner(folder: Path) -> None:
    """Nothing is left of a daemon that ends, be it asked to twice."""
    made = Scratch()
    (made.path / "epoch-1.stop").touch()
    made.remove()
    made.remove()

    assert list(folder.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only root, as a container may have, is no bug: what to set is said."""
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(NoScratchError, match="/proc") as raised:
        Scratch()

    assert "TMPDIR" in raised.value.hint


def test_what_a_killed_daemon_left_is_removed_by_the_next(folder: Path) -> None:
    """A lock ends with its owner's life; those of daemons that live, and what is not ours, are left alone."""
    (folder / "mm2py-by-somebody").mkdir()
    alive, killed = Scratch(), Scratch()
    (killed.path / "secrets.key").touch()
    os.close(killed._lock)
    fresh = Scratch()

    assert {it.name for it in folder.iterdir()} == {"mm2py-by-somebody", alive.path.name, fresh.path.name}
    alive.remove()
    fresh.remove()


def test_what_a_dead_jvm_left_is_cleared(folder: Path) -> None:
    """What the daemon itself put there stays, and so does what a link of Spark's led to."""
    made = Scratch()
    (folder / "elsewhere").mkdir()
    for name in ("secrets.key", "epoch-1.stop", "liblz4-java-1.so"):
        (made.path / name).touch()
    (made.path / "blockmgr-1" / "0d").mkdir(parents=True)
    (made.path / "link").symlink_to(folder / "elsewhere")
    made.clear()

    assert {it.name for it in made.path.iterdir()} == {".scratch", "secrets.key", "epoch-1.stop"}
    assert (folder / "elsewhere").exists()
    made.remove()


@pytest.mark.parametrize("is_all_gone", [True, False])
def test_what_a_cleaner_of_tmp_removed_is_made_again(folder: Path, *, is_all_gone: bool) -> None:
    """Under the same name, which workers have, with a key, and locked: the next daemon does not take it for a ruin."""
    made = Scratch()
    key = made.make_key()
    was_whole = made.is_whole
    if is_all_gone:
        shutil.rmtree(made.path)
    else:
        Path(key).unlink()
    is_whole = made.is_whole
    made.clear()
    check_key_file(key)
    other = Scratch()

    assert (was_whole, is_whole, made.is_whole) == (True, False, True)
    assert {it.name for it in folder.iterdir()} == {made.path.name, other.path.name}
    made.remove()
    other.remove()


def test_files_that_cannot_be_looked_at_count_as_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken disk, or /tmp after a chmod 700: Spark's next start says so, and no bug is reported."""
    made, look = Scratch(), os.stat

    def refuse(path: Any, *args: Any, **named: Any) -> os.stat_result:
        if str(path).startswith(str(made.path)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return look(path, *args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        is_whole = made.is_whole

    assert (is_whole, made.is_whole) == (False, True)
    made.remove()


def test_a_name_that_another_user_has_taken_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may make a directory in /tmp by the name of the one that was removed."""
    made = Scratch()
    shutil.rmtree(made.path)
    made.path.mkdir()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(PermissionError, match="another user has its name"):
        made.clear()

    assert list(made.path.iterdir()) == []
    made.remove()
