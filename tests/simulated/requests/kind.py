"""What a kind of request is to the model: the versions that are understood, and who answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs


#: Takes broker, line, request, and how to answer later; returns the answer if there is one now.
Handler = Callable[[Any, Any, Any, Callable[[Any], None]], Any]


@attrs.frozen
class Kind:
    """One kind of request: each version that the product sends, as a struct of aiokafka's or the product's."""

    handler: Handler
    structs: tuple[Any, ...]
    #: Structs whose schema has the header's tags itself.
    with_header: tuple[Any, ...] = ()

    @property
    def key(self) -> int:
        """The kind's API key."""
        return int(self.structs[0].API_KEY)
