"""
The metrics as documentation.

``python -m mm2py.telemetry.metric_docs docs/metrics.md`` writes the tables of that page again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from mm2py.telemetry.metric_rows import CHAPTERS, Chapter


_HEAD = "| metric | type | labels | meaning | elsewhere |\n|---|---|---|---|---|"


def render(page: str) -> str:
    """Return *page*, Markdown, with its chapters from the first one of metrics on as the rows have them."""
    introduction, _, _ = page.partition(f"## {CHAPTERS[0].title}\n")
    return introduction + "\n\n".join("\n".join(_lines(chapter)) for chapter in CHAPTERS) + "\n"


def _lines(chapter: Chapter) -> Iterator[str]:
    yield f"## {chapter.title}\n"
    if chapter.text:
        yield f"{chapter.text}\n"
    yield _HEAD
    for metric in chapter.metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} | {metric.java} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(render(path.read_text()))
