"""The commands of scripts/ on machines that lack something, and the environment they make, with a stand-in for pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.eventually import scaled


ROOT = Path(__file__).parents[2]
#: What the scripts call, and the stand-in below.
TOOLS = (
    *("bash", "basename", "cat", "cut", "dirname", "flock", "head", "ln", "mkdir", "rm", "sed", "sha256sum", "sleep"),
    "touch",
)
#: Stands in for a Python that makes environments: it writes down what it was asked for, and takes its time.
PYTHON = """\
#!/bin/bash
set -e
case "$1 $2" in
"-c "* | "-m mm2py.cli.demo.arguments") exec {python} "$@" ;;
"-m venv") mkdir -p "$3/bin" && ln -s "$0" "$3/bin/python" && echo venv >>{log} && sleep 0.3 ;;
"-m pip") echo "$*" >>{log} && exit ${{PIP_EXIT:-0}} ;;
*) echo "ran $* in $VIRTUAL_ENV" ;;
esac
"""

NO_LIBRARY = "error while loading shared libraries: libjli.so"


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine that has the shell's tools and nothing else."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (tools / tool).symlink_to(found)
    return {"PATH": str(tools), "HOME": str(tmp_path), "MM2PY_CACHE": str(tmp_path / "cache")}


def install(machine: dict[str, str], name: str, text: str) -> None:
    """Put an executable on the machine."""
    file = Path(machine["PATH"], name)
    file.write_text(textwrap.dedent(text))
    file.chmod(0o755)


def run(machine: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, env=machine, capture_output=True, text=True, timeout=scaled(60))


def python_for_venvs(machine: dict[str, str]) -> Path:
    """Put the stand-in on the machine; return the file where it writes what it was asked for."""
    log = Path(machine["HOME"], "asked")
    log.touch()
    install(machine, "python3", PYTHON.format(python=sys.executable, log=log))
    return log


@pytest.mark.parametrize("command", ["demo", "test", "bench"])
def test_no_java(machine: dict[str, str], command: str) -> None:
    """Without Java nothing is downloaded; one line names what to install."""
    done = run(machine, str(ROOT / "scripts" / command))

    assert done.returncode == 1
    assert done.stderr.startswith(f"scripts/{command}: there is no java; install Java 17 or newer (Debian: apt-get ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("java", "says"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "java is Java 11; install Java 17 or newer"),
        (f"echo '{NO_LIBRARY}' >&2\nexit 127", f"java -version ends with exit code 127: {NO_LIBRARY}"),
    ],
    ids=["too old", "without its libraries"],
)
def test_a_java_that_will_not_do(machine: dict[str, str], java: str, says: str) -> None:
    """One that is too old is named; of one that does not run it is shown what it says."""
    install(machine, "java", f"#!/bin/bash\n{java}\n")
    done = run(machine, str(ROOT / "scripts/demo"))

    assert done.returncode == 1
    assert says in done.stderr


def test_java_home_wins(machine: dict[str, str]) -> None:
    """If JAVA_HOME has no Java, that is the error, whatever is on the path."""
    install(machine, "java", "#!/bin/bash\necho 'openjdk version \"17.0.2\" 2022-01-18' >&2\n")
    done = run({**machine, "JAVA_HOME": "/nowhere"}, str(ROOT / "scripts/demo"))

    assert "there is no /nowhere/bin/java" in done.stderr


def test_no_maven(machine: dict[str, str]) -> None:
    """Maven is required if Kafka's jars are not there yet, and only then."""
    install(machine, "java", "#!/bin/bash\necho 'openjdk version \"17.0.2\" 2022-01-18' >&2\n")
    without = run(machine, str(ROOT / "scripts/demo"))
    jars = Path(machine["MM2PY_CACHE"], "kafka-4.3.1-0")
    jars.mkdir(parents=True)
    (jars / "kafka_2.13-4.3.1.jar").touch()
    python_for_venvs(machine)
    done = run(machine, str(ROOT / "scripts/demo"), "--rate", "10")

    assert "there is no mvn to get Kafka's jars with; install Maven (Debian: apt-get install maven)" in without.stderr
    assert done.stdout.startswith("ran -m mm2py demo --rate 10 in ")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--help"], 0, "--keep-running"),
        (["--rate", "0"], 255, "--seconds and --rate must be numbers greater than 0"),
        (["--quick"], 255, "unrecognized arguments: --quick"),
    ],
)
def test_the_demo_s_arguments_are_judged_before_anything_is_installed(
    machine: dict[str, str], words: list[str], code: int, said: str
) -> None:
    """On a machine with Python alone; otherwise 450 MB would be downloaded first."""
    log = python_for_venvs(machine)
    done = run(machine, str(ROOT / "scripts/demo"), *words)

    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert log.read_text() == ""
    assert not Path(machine["MM2PY_CACHE"]).exists()


def test_no_python(machine: dict[str, str]) -> None:
    """Without a Python that is new enough, one line lists the names that were tried."""
    install(machine, "python3", "#!/bin/bash\nexit 1\n")
    done = run(machine, str(ROOT / "scripts/in-venv"), "true")

    assert done.returncode == 1
    assert "no Python 3.11 or newer under the name(s) python3, python3.14" in done.stderr


def test_the_environment_is_made_once(machine: dict[str, str]) -> None:
    """The first of several commands makes the environment outside the checkout, the others wait for it and use it."""
    log = python_for_venvs(machine)
    command = [str(ROOT / "scripts/in-venv"), "python", "-m", "mm2py"]
    with ThreadPoolExecutor(3) as side_by_side:
        runs = list(side_by_side.map(lambda _: run(machine, *command), range(3)))
    again = run(machine, *command)

    (venv,) = [each for each in Path(machine["MM2PY_CACHE"]).iterdir() if each.is_dir()]
    assert {each.stdout for each in [*runs, again]} == {f"ran -m mm2py in {venv}\n"}
    assert log.read_text().splitlines().count("venv") == 1
    assert f"--editable {ROOT} --group {ROOT}/pyproject.toml:tests" in log.read_text()
    assert again.stderr == ""


def test_a_cache_named_from_here(machine: dict[str, str]) -> None:
    """What runs in the environment may run elsewhere."""
    python_for_venvs(machine)
    tmp = Path(machine["HOME"])
    command = [str(ROOT / "scripts/in-venv"), "python", "-m", "mm2py"]
    done = subprocess.run(
        command,
        check=True,
        env={**machine, "MM2PY_CACHE": "cache"},
        cwd=tmp,
        capture_output=True,
        text=True,
        timeout=scaled(60),
    )

    assert done.stdout.startswith(f"ran -m mm2py in {tmp}/cache/venv-")


def test_a_failed_installation_is_not_used(machine: dict[str, str]) -> None:
    """If pip fails, the command fails with a message, and the next call installs again."""
    log = python_for_venvs(machine)
    failed = run({**machine, "PIP_EXIT": "1"}, str(ROOT / "scripts/in-venv"), "python", "-m", "mm2py")
    done = run(machine, str(ROOT / "scripts/in-venv"), "python", "-m", "mm2py")

    assert failed.returncode == 1
    assert "pip could not install what pyproject.toml names" in failed.stderr
    assert done.returncode == 0
    assert log.read_text().splitlines().count("venv") == 2


def test_an_environment_of_ones_own(machine: dict[str, str]) -> None:
    """MM2PY_VENV names an environment that is taken as it is."""
    done = run(
        {**machine, "MM2PY_VENV": sys.prefix, "PATH": os.environ["PATH"]},
        str(ROOT / "scripts/in-venv"),
        "python",
        "-c",
        "import sys; print(sys.prefix)",
    )

    assert done.stdout == f"{sys.prefix}\n"
    assert not Path(machine["MM2PY_CACHE"]).exists()
