"""What the records say: JSON as applications write it, compressible about as well as theirs, the same in every run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator


KINDS = ("page_view", "add_to_cart", "checkout", "payment_authorized", "order_shipped", "refund_requested")
COUNTRIES = ("DE", "FR", "GB", "IT", "NL", "PL", "SE", "US")
MATERIALS = ("cotton", "linen", "walnut", "copper", "river", "alpine", "classic", "modern", "small", "medium", "large")
THINGS = ("lamp", "chair", "table", "bottle", "jacket", "trouser", "candle", "mirror", "kettle", "basket", "blanket")
WORDS = MATERIALS + THINGS


def records(*, value_bytes: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values without end; a value has about *value_bytes* bytes."""
    rng = random.Random(seed)
    while True:
        user = rng.randrange(50_000)
        yield b"user-%05d" % user, _value(rng, user, value_bytes)


def _value(rng: random.Random, user: int, value_bytes: int) -> bytes:
    event: dict[str, object] = {
        "event": rng.choice(KINDS),
        "user_id": f"user-{user:05d}",
        "session": f"{rng.getrandbits(32):08x}",
        "at": f"2026-03-{rng.randrange(1, 29):02d}T{rng.randrange(24):02d}:{rng.randrange(60):02d}:00Z",
        "amount": rng.randrange(100, 50_000) / 100,
        "country": rng.choice(COUNTRIES),
        "note": "",
    }
    head = _encoded(event)
    if value_bytes <= 2 * len(head):
        event["note"] = _words(rng, value_bytes - len(head))
        return _encoded(event)
    items: list[dict[str, object]] = []
    event["items"] = items
    size = len(head) + len(',"items":[]')
    while size < value_bytes - 110:
        item = {
            "sku": f"{rng.randrange(1_000_000):06d}",
            "title": _words(rng, 30),
            "quantity": rng.randrange(1, 9),
            "price": rng.randrange(100, 20_000) / 100,
        }
        items.append(item)
        size += len(_encoded(item)) + 1
    event["note"] = _words(rng, value_bytes - len(_encoded(event)))
    return _encoded(event)


def _words(rng: random.Random, length: int) -> str:
    text = ""
    while len(text) < length:
        text += rng.choice(WORDS) + " "
    return text[: max(length, 0)]


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
