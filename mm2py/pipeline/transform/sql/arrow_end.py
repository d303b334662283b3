"""
Is all of a task's input there?

Where a transform fails in Spark's JVM, the Python worker behind it sees its input end as if that had been all: what had
come by then would be written, and taken for the whole stretch. What is missing is the marker by which an Arrow stream
says that it ends. Spark's own reader does not look for it, so ours stands in its place.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import attrs
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from mm2py.errors import Mm2Error


#: Arrow's end of stream: a continuation and a length of zero.
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@attrs.define(eq=False)
class InputCutOffError(Mm2Error):
    """What came before a Spark task has failed, and its input ends too early."""

    def __str__(self) -> str:
        return "the input of this Spark task was cut off, because what gives it has failed"


class _Watched(io.RawIOBase):
    """A stream that knows the last bytes that were read of it."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self.tail = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        content: bytes = self._stream.read(size)
        self.tail = (self.tail + bytes(content[-len(_END) :]))[-len(_END) :]
        return content


class WholeInputs:
    """Counts the inputs of this process that were read to their end and were whole."""

    def __init__(self) -> None:
        self.count = 0
        self._load = ArrowStreamSerializer.load_stream

    def watch(self) -> None:
        """Look at every input from now on; one that is cut off raises `InputCutOffError` where it ends."""
        load, inputs = self._load, self

        def load_stream(serializer: ArrowStreamSerializer, stream: Any) -> Iterator[Any]:
            watched = _Watched(stream)
            yield from load(serializer, watched)
            if watched.tail != _END:
                raise InputCutOffError
            inputs.count += 1

        ArrowStreamSerializer.load_stream = load_stream


#: Those of this process.
inputs: Final = WholeInputs()
