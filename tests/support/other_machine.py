"""The daemon as if it ran on a machine of its own: other nodes cannot see whether its process has ended."""

from __future__ import annotations

import sys
import uuid

from mm2py.cli import mirror_maker
from mm2py.herder import this_node


if __name__ == "__main__":
    machine = uuid.uuid4().hex
    this_node._machine = lambda: machine
    sys.exit(mirror_maker.main())
