#!/usr/bin/env python3
"""Run a MirrorMaker node from a checkout: ``scripts/connect-mirror-maker.py etc/mm2.properties [--clusters B …]``."""

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mm2py.cli.entry import connect_mirror_maker


if __name__ == "__main__":
    sys.exit(connect_mirror_maker())
