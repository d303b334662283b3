"""The documents, as they are installed: the page, hints and ``mm2py docs`` lead to them. It loads nothing."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from importlib.resources.abc import Traversable


def documents() -> Mapping[str, Traversable]:
    """Return the documents by name, such as ``security.md``; a wheel has them with the page, a checkout of its own."""
    places = (importlib.resources.files("mm2py.rest") / "static/docs", importlib.resources.files("mm2py") / "../docs")
    for place in places:
        if place.is_dir():
            found = {file.name: file for file in place.iterdir() if file.name.endswith(".md")}
            return dict(sorted(found.items()))
    return {}
