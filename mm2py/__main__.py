"""``python -m mm2py``."""

from __future__ import annotations

import sys

from mm2py.cli.main import main


if __name__ == "__main__":
    sys.exit(main())
