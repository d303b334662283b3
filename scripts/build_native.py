#!/usr/bin/env python3
"""
Compiles the C files of mm2py/wire/batches beside them: as a hook of the package's build, and for a checkout by
scripts/in-venv. Without a C compiler mm2py works as well, and mirrors small batches with more CPU time.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any


ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "mm2py/wire/batches"
#: Python would take a name that ends in .so for a module of its own.
LIBRARY = SOURCES / "libbatches.so.1"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")


def build() -> str:
    """Compile the library, and return what went wrong; nothing if it is there."""
    made = LIBRARY.with_name(f"{LIBRARY.name}.{os.getpid()}")
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        *FLAGS,
        "-o",
        str(made),
        *map(str, sorted(SOURCES.glob("*.c"))),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    if done.returncode != 0:
        return f"{shlex.join(command)}:\n{done.stderr}"
    made.replace(LIBRARY)
    return ""


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:
    pass
else:

    class NativeBuildHook(BuildHookInterface[Any]):
        """Puts the library into the wheel, which is one of this platform then, for every version of Python."""

        def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
            """Compile it; without a compiler the wheel is pure Python."""
            if problem := build():
                self.app.display_warning(f"mm2py is built without compiled code: {problem}")
                return
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
            build_data["artifacts"].append(str(LIBRARY.relative_to(ROOT)))


if __name__ == "__main__":
    sys.exit(build() or None)
