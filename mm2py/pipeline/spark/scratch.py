"""The daemon's private directory: made as it starts, gone as it ends. What a killed one left, the next one removes."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import attrs

from mm2py.errors import Mm2Error
from mm2py.pipeline.spark.sealing import make_key_file


_PREFIX = "mm2py-"
#: Tells it from other directories of that name, and is there only once the directory is locked.
_MARK = ".scratch"
#: What the daemon itself keeps there: the key of its plans, and the files by which it ends epochs.
_KEY = "secrets.key"
_OURS = (_MARK, _KEY, "epoch-")


@attrs.define(eq=False)
class NoScratchError(Mm2Error):
    """There is no place for a private directory."""

    hint: ClassVar[str] = "make /tmp writable, and some of it free, or set TMPDIR to a folder that is"

    cause: str

    def __str__(self) -> str:
        return f"no private directory can be made for temporary files: {self.cause}"


class Scratch:
    """
    A private directory, at `path`. Raise `NoScratchError` if there can be none.

    Its owner keeps it locked. The kernel lets go of the lock when the owner ends, in whatever way.
    """

    def __init__(self) -> None:
        self._lock, self._has_key = -1, False
        try:
            _sweep()
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._claim()
        except OSError as error:
            raise NoScratchError(str(error)) from error

    @property
    def is_whole(self) -> bool:
        """Whether nothing has removed it, or what in it is old: cleaners of /tmp other than systemd's heed no lock."""
        # Unlike those of pathlib, these raise nothing where a disk is broken, or /tmp has lost its rights.
        return os.path.exists(self.path / _MARK) and (not self._has_key or os.path.exists(self._key))  # noqa: PTH110

    def make_key(self) -> str:
        """Make a key to seal plans with; return its file. Without a place for it there is no directory either."""
        try:
            self._has_key = True
            return make_key_file(str(self._key))
        except OSError as error:
            self.remove()
            raise NoScratchError(str(error)) from error

    def clear(self) -> None:
        """
        Remove what an earlier life of Spark left there: a JVM that is killed, or crashes, removes nothing.

        What of our own was removed is made again, under the names that are in use.
        """
        if not self.is_whole:
            self.path.mkdir(mode=0o700, exist_ok=True)
            if self.path.lstat().st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it was removed, and another user has its name now", str(self.path))
            self._claim()
            if self._has_key and not self._key.exists():
                make_key_file(str(self._key))
        for entry in self.path.iterdir():
            if entry.name.startswith(_OURS):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove it with all that is in it; a second time does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._let_go()

    @property
    def _key(self) -> Path:
        return self.path / _KEY

    def _claim(self) -> None:
        self._let_go()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / _MARK).touch()

    def _let_go(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep() -> None:
    """Remove what daemons of this user left that were killed."""
    for mark in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_MARK}"):
        try:
            lock = os.open(mark.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(mark.parent, ignore_errors=True)
        except OSError:
            continue  # its owner lives
        finally:
            os.close(lock)
