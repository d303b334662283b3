"""Metrics are Java's: the names that MirrorMaker gives them, and what Kafka's statistics make of the same numbers."""

from __future__ import annotations

import math
import random
import re
import zipfile

import pytest

from mm2py.core.windows import Window
from mm2py.devkit.jars import kafka_jars
from mm2py.model.epoch import MeasuredTime
from mm2py.telemetry.metric_rows import METRICS
from tests.support.java_programs import java_program


#: Java's classes, and what the JMX exporter's usual rules make of their beans.
_CLASSES = {
    "MirrorSourceMetrics": "kafka_connect_mirror_source_connector_",
    "MirrorCheckpointMetrics": "kafka_connect_mirror_checkpoint_connector_",
}
_NAME = re.compile(rb"[a-z]+(?:-[a-z]+)+")


@pytest.mark.parametrize("java", _CLASSES)
def test_each_of_java_s_metrics_is_exported(java: str) -> None:
    """What stands as a metric's name in Java's class is a metric here, by the JMX exporter's name, and no other is."""
    jar = next(kafka_jars().directory.glob("connect-mirror-[0-9]*.jar"))
    with zipfile.ZipFile(jar) as archive:
        found = _NAME.findall(archive.read(f"org/apache/kafka/connect/mirror/{java}.class"))
    names = {_CLASSES[java] + name.decode().replace("-", "_") for name in found}

    assert len(names) in (4, 12)
    assert names == {name for name in METRICS if name.startswith(_CLASSES[java])}


@pytest.mark.parametrize("seed", range(6))
def test_windows_are_java_s(seed: int) -> None:
    """Rates and times of epochs, busy, slow and with long breaks, are those of Kafka's own classes, one by one."""
    chance = random.Random(seed)
    window, now_ms, asked, ours = Window(), 1_000_000, [], []
    for _ in range(150):
        now_ms += chance.choice((200, 1_000, 5_000, 5_000, 5_000, 20_000, 29_999, 30_000, 45_000, 61_000, 200_000))
        value = chance.randrange(1, 500)
        asked.append(f"{now_ms}={value}")
        window.note(now_ms / 1000, value, 0, age=None, latency=MeasuredTime(1, value, value, value, value))
        for pause_ms in (0, chance.choice((1, 300, 4_000, 33_000, 59_999, 70_000))):
            now_ms += pause_ms
            asked.append(str(now_ms))
            reading = window.read(now_ms / 1000)
            times = reading.latency
            assert times is not None
            ours.append([reading.record_rate, times.last_ms, times.min_ms, times.max_ms, times.avg_ms])
    told = [[float(word) for word in line.split()] for line in java_program("SampledStats").run(*asked)]

    assert len(told) == len(ours)
    for java, own in zip(told, ours, strict=True):
        known = [math.nan if value is None else value for value in own]
        assert known == pytest.approx(java, nan_ok=True, rel=1e-6)
