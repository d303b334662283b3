"""How a plan that carries secrets crosses to Spark's workers."""

from __future__ import annotations

import pickle
from pathlib import Path

import attrs
import pytest

from mm2py.errors import Verdict
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.epoch import CopyLimits, EpochPlan, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.spark.sealing import SecretsKeyError, check_key_file, make_key_file, seal, unseal


SECRET = "pl4nted-s3cret"
OPEN_END = ClusterEndpoint("A", ("a:1",))
LOCKED_END = ClusterEndpoint("B", ("b:1",), security=Security("SASL_SSL", (("sasl.jaas.config", SECRET),)))
PLAN = EpochPlan(Flow("A", "B"), 0, 1, OPEN_END, LOCKED_END, (), CopyLimits(), 1000, 1000)


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    return make_key_file(str(tmp_path / "key"))


def test_a_sealed_plan_shows_nothing_and_opens_again(key_file: str) -> None:
    """Neither the secret nor the plan around it can be seen in what travels; who has the key gets it back whole."""
    payload = seal(PLAN, key_file)

    assert SECRET.encode() not in payload
    assert b"EpochPlan" not in payload
    assert unseal(payload) == PLAN
    assert seal(PLAN, key_file) != payload


def test_plans_without_secrets_go_as_they_are(key_file: str) -> None:
    """Nothing is spent on a plan that has nothing to hide, or where Spark encrypts what it sends."""
    plain = attrs.evolve(PLAN, target=OPEN_END)

    assert pickle.loads(seal(plain, key_file)[1:]) == plain
    assert unseal(seal(plain, None)) == plain
    assert unseal(seal(PLAN, None)) == PLAN


@pytest.mark.parametrize("target", [OPEN_END, LOCKED_END])
def test_a_large_plan_is_made_small(key_file: str, target: ClusterEndpoint) -> None:
    """The plan of thousands of partitions says the same again and again; what travels is a fifth of it."""
    topics = (TopicPartition(f"topic-{number // 50}", number % 50) for number in range(1_000))
    partitions = tuple(PartitionPlan(it, f"A.{it.topic}", 17, 17, is_unsure=False) for it in topics)
    plan = attrs.evolve(PLAN, target=target, partitions=partitions)

    payload = seal(plan, key_file)

    assert len(payload) < len(pickle.dumps(plan)) / 5
    assert unseal(payload) == plan


def test_another_key_or_none_is_said_where_it_is_missed(key_file: str) -> None:
    """A worker that has another key, or no such file, says which file on which machine."""
    payload = seal(PLAN, key_file)
    Path(key_file).write_text("another key, long enough")
    with pytest.raises(SecretsKeyError, match=r"it is not the daemon's key on "):
        unseal(payload)
    Path(key_file).unlink()
    with pytest.raises(SecretsKeyError, match=r"No such file or directory on ") as caught:
        unseal(payload)

    assert key_file in str(caught.value)
    assert caught.value.verdict is Verdict.STOP_FLOW


def test_a_changed_plan_is_refused(key_file: str) -> None:
    """A sealed plan that was changed on its way to a worker does not run."""
    payload = bytearray(seal(PLAN, key_file))
    payload[-1] ^= 1
    with pytest.raises(SecretsKeyError):
        unseal(bytes(payload))


def test_keys_that_will_not_do(tmp_path: Path, key_file: str) -> None:
    """A key that others may read, or that is none, is refused before anything is sealed with it."""
    short = tmp_path / "short"
    short.write_text("abc")
    short.chmod(0o600)
    check_key_file(key_file)
    with pytest.raises(SecretsKeyError, match=r"too short; make one with"):
        check_key_file(str(short))
    Path(key_file).chmod(0o604)
    with pytest.raises(SecretsKeyError, match=r"every user on .* may read it"):
        seal(PLAN, key_file)


def test_a_run_s_own_key_is_private(key_file: str) -> None:
    """The key of a run is long, new each time, and readable by its own user alone."""
    other = make_key_file(key_file + "2")

    assert Path(key_file).stat().st_mode & 0o777 == 0o600
    assert len(Path(key_file).read_text()) == 64
    assert Path(key_file).read_text() != Path(other).read_text()
