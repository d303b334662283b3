"""Which settings Spark is started with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2py.pipeline.spark.settings import SparkSettings, class_archive, spark_settings, with_retries


def settings_of(user: Mapping[str, str], **changes: Any) -> SparkSettings:
    ours = {
        "python": "/usr/bin/python3",
        "package_parent": "/opt/app",
        "log_file": "/opt/log4j2",
        "scratch": "/tmp/ours",
    }
    return spark_settings(user, **{"copy_tasks": 3, **ours, **changes})


def conf_of(user: Mapping[str, str] | None = None, **changes: Any) -> dict[str, str]:
    return dict(settings_of(user or {}, **changes).conf)


@pytest.mark.parametrize(
    ("asked", "master", "slots"),
    [
        pytest.param(None, "local[4]", 4, id="default"),
        pytest.param("local[*]", "local[4]", 4, id="as many slots as copy tasks, and one"),
        pytest.param("local[2]", "local[2]", 2, id="a number is kept"),
        pytest.param("local[2,4]", "local[2,4]", 2, id="with retries"),
        pytest.param("local", "local", 1, id="one slot"),
        pytest.param("spark://host:7077", "spark://host:7077", None, id="standalone"),
        pytest.param("local-cluster[2,1,512]", "local-cluster[2,1,512]", None, id="pretended cluster"),
    ],
)
def test_master(asked: str | None, master: str, slots: int | None) -> None:
    """Only local[*] is counted out; any other master is kept as it is."""
    settings = settings_of({"spark.master": asked} if asked else {})

    assert (settings.master, settings.slots) == (master, slots)
    assert dict(settings.conf)["spark.master"] == master


@pytest.mark.parametrize(
    ("asked", "master"),
    [
        pytest.param({}, "local[3,4]", id="default"),
        pytest.param({"spark.master": "local[2]"}, "local[2,4]", id="a number is kept"),
        pytest.param({"spark.master": "local[2,9]"}, "local[2,9]", id="what is asked for is kept"),
        pytest.param({"spark.master": "spark://host:7077"}, "spark://host:7077", id="standalone"),
    ],
)
def test_a_job_that_may_be_done_twice_is_tried_again(asked: Mapping[str, str], master: str) -> None:
    """Embedded Spark goes by its master's second number, a cluster by the setting."""
    conf = conf_of(with_retries(asked, slots=3, failures=4))

    assert (conf["spark.master"], conf["spark.task.maxFailures"]) == (master, "4")


def test_a_slot_at_least() -> None:
    """Without a copy task there is still a slot, since Spark refuses none."""
    assert settings_of({}, copy_tasks=0).master == "local[1]"


def test_the_user_wins() -> None:
    """Whatever the user's file says under spark. beats our settings."""
    conf = conf_of({"spark.driver.memory": "2g", "spark.ui.enabled": "false", "spark.foo": "bar"})

    assert (conf["spark.driver.memory"], conf["spark.ui.enabled"], conf["spark.foo"]) == ("2g", "false", "bar")
    assert conf["spark.task.maxFailures"] == "1"


def test_a_statement_that_takes_all_of_java_s_memory_does_not_end_the_jvm() -> None:
    """All topics of a node have one JVM here, while an executor of a cluster, which Spark would end, is one of many."""
    key = "spark.executor.killOnFatalError.depth"

    assert conf_of()[key] == "0"
    assert key not in conf_of({"spark.master": "spark://host:7077"})


def test_java_options_are_joined() -> None:
    """Options of the user's are added to ours, and another garbage collector or log file replaces ours."""
    plain = conf_of()["spark.driver.extraJavaOptions"]
    added = conf_of({"spark.driver.extraJavaOptions": "-Dx=1"})["spark.driver.extraJavaOptions"]
    other = conf_of({"spark.driver.extraJavaOptions": "-XX:+UseG1GC -Dlog4j2.configurationFile=x"})[
        "spark.driver.extraJavaOptions"
    ]

    assert "-XX:+UseSerialGC" in plain
    assert "file:///opt/log4j2" in plain
    assert added.split() == [*plain.split()[:-1], "-Dx=1", plain.split()[-1]]
    assert "UseSerialGC" not in other
    assert "/opt/log4j2" not in other


def test_temporary_files_go_with_the_daemon() -> None:
    """They are in its folder, which the next start removes if all were killed; options and variables say otherwise."""
    options, sockets = "spark.driver.extraJavaOptions", "spark.python.unix.domain.socket.dir"
    has_sockets = "spark.python.unix.domain.socket.enabled"

    ours, far = conf_of(), conf_of({"spark.master": "spark://host:7077"})
    own, elsewhere = (
        conf_of({options: "-Djava.io.tmpdir=/mine"}),
        conf_of(java_environment="-Djava.io.tmpdir=/elsewhere"),
    )
    long, longest = conf_of(scratch="/tmp/" + "x" * 57), conf_of(scratch="/tmp/" + "x" * 56)

    assert (ours[options].split()[-1], ours[sockets]) == ("-Djava.io.tmpdir=/tmp/ours", "/tmp/ours")
    assert "-Djava.io.tmpdir=/tmp/ours" in far[options]
    assert sockets not in far  # executors have no such folder
    assert ours["spark.local.dir"] == "/tmp/ours"
    assert "spark.local.dir" not in far
    assert own[options].count("java.io.tmpdir") == 1
    assert "java.io.tmpdir" not in elsewhere[options]
    assert (ours[has_sockets], long[has_sockets], sockets in long) == ("true", "false", False)
    assert longest[sockets] == "/tmp/" + "x" * 56


def test_a_user_without_an_account_has_a_home() -> None:
    """A container may run with a number that the system has no name for: Java has no home for it, which Spark needs."""
    key = "spark.driver.extraJavaOptions"

    nameless, own = conf_of(has_account=False), conf_of({key: "-Duser.home=/mine"}, has_account=False)

    assert "-Duser.home=/tmp/ours" in nameless[key].split()
    assert "-Duser.home=/tmp/ours" not in own[key]
    assert "user.home" not in conf_of()[key]


@pytest.mark.parametrize(
    "own", ["-XX:SharedArchiveFile=/mine.jsa", "-XX:ArchiveClassesAtExit=/mine.jsa", "-Xshare:off", "-Xshare:auto"]
)
def test_classes_come_from_the_archive(own: str) -> None:
    """Where there is one, unless the user's options say something about archives themselves."""
    key, flag = "spark.driver.extraJavaOptions", "-XX:SharedArchiveFile=/opt/classes.jsa"
    without = conf_of()[key]
    plain = conf_of({key: "-Dx=1"}, archive="/opt/classes.jsa")[key]
    told = conf_of({key: own}, archive="/opt/classes.jsa")[key]

    assert "Archive" not in without
    assert flag in plain
    assert flag not in told
    assert own in told


def test_paths_may_have_blanks() -> None:
    """Of a checkout, an environment or TMPDIR: Spark splits options at blanks, as a shell does."""
    conf = conf_of(log_file="/my app/log4j2", archive="/my app/classes.jsa", scratch="/my tmp")

    options = shlex.split(conf["spark.driver.extraJavaOptions"])

    assert "-Dlog4j2.configurationFile=file:///my%20app/log4j2" in options
    assert "-XX:SharedArchiveFile=/my app/classes.jsa" in options
    assert "-Djava.io.tmpdir=/my tmp" in options


def test_an_archive_that_was_cut_off_is_none(tmp_path: Path) -> None:
    """Java would crash on it."""
    whole, cut = tmp_path / "spark-10.jsa", tmp_path / "spark-11.jsa"
    cut.write_bytes(bytes(10))
    assert class_archive(tmp_path) == class_archive(tmp_path / "nowhere") == ""
    whole.write_bytes(bytes(10))
    assert class_archive(tmp_path) == str(whole)


def test_workers_find_the_package() -> None:
    """Embedded workers get the package's place on their path, beside what the user put there."""
    embedded = conf_of({"spark.executorEnv.PYTHONPATH": "/mine"})
    cluster = conf_of({"spark.master": "spark://h:1", "spark.executorEnv.PYTHONPATH": "/mine"})

    assert embedded["spark.executorEnv.PYTHONPATH"] == "/opt/app:/mine"
    assert cluster["spark.executorEnv.PYTHONPATH"] == "/mine"
    assert "spark.python.daemon.module" not in cluster


def test_a_cluster_is_not_taken_whole() -> None:
    """On a cluster as many cores are asked for as there are copy tasks, unless the user says otherwise."""
    modest = conf_of({"spark.master": "spark://h:1"})
    asked = conf_of({"spark.master": "spark://h:1", "spark.cores.max": "9"})

    assert (modest["spark.cores.max"], asked["spark.cores.max"]) == ("3", "9")


def test_the_python_of_the_workers() -> None:
    """Workers run this Python, or the one that the user names."""
    assert settings_of({}).python == "/usr/bin/python3"
    assert settings_of({"spark.pyspark.python": "/opt/python"}).python == "/opt/python"


def test_secrets_of_spark_s_own_are_not_among_arguments() -> None:
    """What Spark keeps from its page is not put where every user of the machine can read it, and reaches Spark."""
    secret = {"spark.authenticate.secret": "x", "spark.ssl.keyPassword": "x", "spark.hadoop.fs.s3a.access.key": "x"}
    settings = settings_of({**secret, "spark.foo": "bar"})

    assert secret.keys() <= dict(settings.conf).keys()
    assert not secret.keys() & dict(settings.shown_conf).keys()
    assert dict(settings.shown_conf).keys() | secret.keys() == dict(settings.conf).keys()


@pytest.mark.parametrize(
    ("master", "is_here"), [("local[*]", True), ("local", True), ("local-cluster[1,1,1]", True), ("yarn", False)]
)
def test_what_runs_on_this_machine(master: str, is_here: bool) -> None:
    """A key in a private folder of this machine is enough for Spark within this process or pretending a cluster."""
    assert settings_of({"spark.master": master}).is_on_this_machine is is_here
