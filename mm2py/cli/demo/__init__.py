"""The demo: see it work on this machine before trusting it with yours."""

from __future__ import annotations

from mm2py.cli.demo.command import main


__all__ = ["main"]
