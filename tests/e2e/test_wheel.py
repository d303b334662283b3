"""What is in the package that users install."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from mm2py.rest.page.documents import documents
from mm2py.wire.batches import native
from tests.support.eventually import scaled


_ROOT = Path(__file__).parents[2]


def test_the_wheel_has_the_status_page_and_compiled_code(tmp_path: Path) -> None:
    """It has the status page's files, unchanged, and compiled code for this platform if there is a compiler."""
    line = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path), str(_ROOT)]
    subprocess.run(line, check=True, timeout=scaled(240))
    (wheel,) = tmp_path.glob("*.whl")
    here = {
        str(path.relative_to(_ROOT)): path.read_bytes()
        for path in (_ROOT / "mm2py/rest/static").rglob("*")
        if path.is_file()
    }
    here |= {f"mm2py/rest/static/docs/{name}": file.read_bytes() for name, file in documents().items()}
    has_compiler = native.LIBRARY.exists()  # scripts/in-venv has built it in the same way
    with zipfile.ZipFile(wheel) as packed:
        is_compiled = "mm2py/wire/batches/libbatches.so.1" in packed.namelist()
        there = {name: packed.read(name) for name in packed.namelist() if name in here}

    assert {"mm2py/rest/static/index.html", "mm2py/rest/static/docs/security.md"} <= here.keys()
    assert there == here
    assert is_compiled is has_compiler
    assert wheel.stem.endswith("py3-none-any") is not has_compiler
