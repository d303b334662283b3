"""
Objects of Spark's JVM that this process holds, and for how long: the JVM keeps each of them until it is told.

py4j keeps each method that was called in its object, and the object in the method. Only Python's garbage collector
finds such a circle, and the more a process holds, the more rarely it looks at what has been there for some seconds. So
the JVM would keep the plans and RDDs of hundreds of epochs that are over.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaMember, JavaObject, is_magic_member


def release_unused() -> None:
    """Have objects released with their last use, in all of this process."""
    JavaObject.__getattr__ = _method


def _method(self: Any, name: str) -> Any:
    """Return a method as py4j's own `__getattr__` does, without keeping it. It serves no fields, as PySpark has it."""
    if is_magic_member(name):
        raise AttributeError(name)
    return JavaMember(name, self, self._target_id, self._gateway_client)


def taken(java_list: Any) -> list[Any]:
    """Return what is in a Java list, which is released: unlike other objects it holds a method of its own."""
    found = [java_list.get(at) for at in range(java_list.size())]
    java_list._detach()  # noqa: SLF001 - there is no public way
    return found
