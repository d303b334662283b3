"""Kafka's own parser as the oracle for sasl.jaas.config."""

from __future__ import annotations

import base64
import random

from mm2py.model.jaas import JaasError, parse_jaas
from tests.support.java_programs import java_program


_PIECES = (
    " ", "\n", "=", ";", '"', "'", "\\", "/", "//", "/*", "*/", "a", "b.C", "user", "x-1", "$v", "_w", "7", "0.5", "-",
    "\\101", "\\n", "!", "é", '"q r"', "'s'", "k=v", 'k="v"', "required", "k = v", "{", "@", "\t", "\r",
)  # fmt: skip


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _read(text: str) -> str:
    try:
        line = parse_jaas(text)
    except JaasError:
        return "refused"
    options = (f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(line.options.items()))
    return " ".join((_encoded(line.module), *options))


async def test_lines_are_read_as_java_reads_them() -> None:
    """Hundreds of lines, whole and mangled, are read, or refused, exactly as Kafka's own clients do."""
    jitter = random.Random(4382)
    lines = ["M required " + "".join(jitter.choices(_PIECES, k=jitter.randint(0, 9))) + ";" for _ in range(500)]
    lines += ["".join(jitter.choices(_PIECES, k=jitter.randint(1, 8))) for _ in range(100)]
    told = await java_program("JaasLines").ask(*map(_encoded, lines))
    ours = [_read(line) for line in lines]

    assert [(line, mine, java) for line, mine, java in zip(lines, ours, told, strict=True) if mine != java] == []
    assert 50 < sum(answer != "refused" for answer in told) < len(lines) - 50
