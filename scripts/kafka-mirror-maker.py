#!/usr/bin/env python3
"""Run MirrorMaker 1's command line from a checkout: ``scripts/kafka-mirror-maker.py --consumer.config …``."""

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mm2py.cli.entry import kafka_mirror_maker


if __name__ == "__main__":
    sys.exit(kafka_mirror_maker())
