#!/usr/bin/env python3
"""Run a standalone worker's connectors from a checkout: ``scripts/connect-standalone.py WORKER CONNECTOR …``."""

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mm2py.cli.entry import connect_standalone


if __name__ == "__main__":
    sys.exit(connect_standalone())
