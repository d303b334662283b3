"""``python -m mm2py``."""

from __future__ import annotations

import sys

from mm2py.cli.entry import mm2py


if __name__ == "__main__":
    sys.exit(mm2py())
