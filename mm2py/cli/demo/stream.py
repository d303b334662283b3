"""The demo's records: a web shop's orders, clicks and payments, as JSON with keys and headers, and their topics."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator

import attrs

from mm2py.wire.sample_load import SampleRecord


Headers = tuple[tuple[str, bytes | None], ...]

_CUSTOMERS = 5_000
_SKUS = ("kettle", "teapot", "mug", "strainer", "caddy", "tray", "spoon", "saucer")
_PAGES = ("/", "/search", "/teapots", "/teapots/42", "/basket", "/checkout", "/returns")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0)", "shop-app/7.4 (Android 15)")
_JSON: tuple[str, bytes] = ("content-type", b"application/json")
_SEED = 20_240_229


@attrs.frozen
class SampleTopic:
    """A topic of the shop; `share` is its part of the stream, in percent."""

    name: str
    partitions: int
    codec: str
    share: int
    make: Callable[[random.Random, int, int], SampleRecord]


def samples(topic: SampleTopic, clock_ms: Callable[[], int]) -> Iterator[SampleRecord]:
    """Return an endless iterator of records of *topic*, with current timestamps."""
    chance = random.Random(_SEED + topic.partitions)  # noqa: S311  # variety, not secrecy
    for number in itertools.count(1):
        yield topic.make(chance, number, clock_ms())


def _order(chance: random.Random, number: int, now_ms: int) -> SampleRecord:
    customer = f"customer-{chance.randrange(_CUSTOMERS):05d}"
    items = [
        {"sku": chance.choice(_SKUS), "quantity": chance.randint(1, 4), "pence": chance.randint(199, 8_999)}
        for _ in range(chance.randint(1, 3))
    ]
    order = {"order": number, "customer": customer, "items": items, "currency": "GBP", "placed_at_ms": now_ms}
    headers: Headers = (_JSON, ("schema", b"shop.order/3"), ("trace-id", b"%032x" % chance.getrandbits(128)))
    return SampleRecord(customer.encode(), _json(order), headers, now_ms)


def _click(chance: random.Random, number: int, now_ms: int) -> SampleRecord:
    click = {
        "page": chance.choice(_PAGES),
        "referrer": chance.choice(_PAGES),
        "agent": chance.choice(_AGENTS),
        "session": f"{chance.getrandbits(64):016x}",
        "dwell_ms": int(chance.expovariate(1 / 4_000)),
        "number": number,
    }
    # Visitors without a login have no key.
    is_known = chance.random() < 0.8  # noqa: PLR2004
    key = f"customer-{chance.randrange(_CUSTOMERS):05d}".encode() if is_known else None
    return SampleRecord(key, _json(click), (_JSON, ("experiment", b"B" if number % 2 else None)), now_ms)


def _payment(chance: random.Random, number: int, now_ms: int) -> SampleRecord:
    key = f"payment-{number:09d}".encode()
    headers: Headers = (_JSON, ("signature", chance.randbytes(32)))
    # One in fifty is a tombstone: the key with a null value.
    if chance.randrange(50) == 0:
        return SampleRecord(key, None, headers, now_ms)
    payment = {
        "payment": number,
        "card": f"**** {chance.randrange(10_000):04d}",
        "pence": chance.randint(199, 40_000),
        "currency": "GBP",
        "state": chance.choice(("authorised", "captured", "refused")),
    }
    return SampleRecord(key, _json(payment), headers, now_ms)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


#: What the demo mirrors.
TOPICS = (
    SampleTopic("orders", 4, "zstd", 30, _order),
    SampleTopic("clicks", 6, "lz4", 60, _click),
    SampleTopic("payments", 2, "snappy", 10, _payment),
)
