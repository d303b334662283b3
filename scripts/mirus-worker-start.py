#!/usr/bin/env python3
"""Run a worker whose connectors are created over REST from a checkout: ``scripts/mirus-worker-start.py WORKER``."""

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mm2py.cli.entry import mirus_worker_start


if __name__ == "__main__":
    sys.exit(mirus_worker_start())
