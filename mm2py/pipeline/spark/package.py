"""This package's own files, for executors that do not have it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

import mm2py


PACKAGE: Final = Path(mm2py.__file__).parent


def zip_package(folder: Path) -> Path:
    """Pack them, as they are installed here, into a file in *folder*."""
    target = folder / "mm2py-package.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.suffix in (".py", ".properties", ".typed"):
                archive.write(file, Path(PACKAGE.name, file.relative_to(PACKAGE)))
    return target
