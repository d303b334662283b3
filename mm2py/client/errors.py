"""What can go wrong when a mirrored cluster is asked, beyond what `mm2py.errors` knows."""

from __future__ import annotations

from typing import ClassVar

import attrs

from mm2py.errors import Mm2Error


@attrs.define(eq=False)
class TopicMissingError(Mm2Error):
    """A topic of MirrorMaker 2's, or one that was asked for by name, is not on the cluster or may not be seen."""

    hint: ClassVar[str] = (
        "check the alias, the replication policy's separator, and that a flow from that cluster runs and may be read"
    )

    cluster: str
    topic: str
    what: str = ""

    def __str__(self) -> str:
        purpose = f", which would hold {self.what}" if self.what else ""
        return f"cluster {self.cluster} has no topic {self.topic}{purpose}"


@attrs.define(eq=False)
class ReadingTookTooLongError(Mm2Error):
    """
    A topic could not be read to its end in the time that was given.

    Java's client gives what it has read by then, which may be offsets of long ago; here that is an error.
    """

    hint: ClassVar[str] = "give it more time"

    cluster: str
    topic: str
    within_s: float

    def __str__(self) -> str:
        return f"{self.topic} of cluster {self.cluster} was not read to its end within {self.within_s:g} s"
