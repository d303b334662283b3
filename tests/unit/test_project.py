"""What the repository says about itself is true: documents, scripts, limits, contracts."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import os
import pickle
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import grimp
import pytest

import mm2py
from mm2py.cli.demo.command import DemoExit
from mm2py.cli.exit_code import ExitCode
from mm2py.errors import Mm2Error


ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "mm2py"
FAULTS = ROOT / "tests/faults.md"
DOCUMENTS = sorted(file for place in (".", "docs", "bench", "tests") for file in (ROOT / place).glob("*.md"))
SCRIPTS = sorted([*filter(Path.is_file, (ROOT / "scripts").iterdir()), ROOT / ".ci/run"])

PYTHON = sorted(file for folder in ("mm2py", "tests", "bench") for file in (ROOT / folder).rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION, LONGEST_DESIGN, LONGEST_LINE = 500, 50, 299, 120

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")


def _modules() -> Iterator[str]:
    for found in pkgutil.walk_packages([str(PACKAGE)], "mm2py."):
        # Importing these means running something.
        if found.name not in {"mm2py.__main__", "mm2py.pipeline.spark.fork_server"}:
            yield found.name


def _errors() -> list[type[Mm2Error]]:
    for name in _modules():
        importlib.import_module(name)
    found, left = [], [Mm2Error]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if attrs.has(kind) and kind.__module__.startswith("mm2py."):
            found.append(kind)
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def _some(kind: object) -> object:
    """Make up a value for a field of an error."""
    text = str(kind)
    if text.startswith("int"):
        return 7
    if text.startswith("float"):
        return 0.5
    if text.startswith("bool"):
        return True
    return ("one", "two") if text.startswith("tuple") else "some text"


@pytest.mark.parametrize("kind", _errors(), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling(kind: type[Mm2Error]) -> None:
    """An error that crosses Spark's process border arrives with its facts, its verdict and its words."""
    error = kind(*[_some(field.type) for field in attrs.fields(kind)])

    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again), again.verdict) == (kind, str(error), error.verdict)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Each relative link of a document names a file that is there, and a heading in it."""
    for link in _LINK.findall(document.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document

        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_cell_of_a_table_is_lost(document: Path) -> None:
    """Each row of a table has as many cells as its head: code hosts leave out what is beyond that."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, *rows = table.splitlines()
        cells = len(_BETWEEN_CELLS.findall(head))

        assert [row for row in rows if len(_BETWEEN_CELLS.findall(row)) != cells] == []


def _anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {_NOT_IN_ANCHORS.sub("", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_design_page_is_short_enough_to_be_read() -> None:
    """The page for newcomers has less than three hundred lines, none of them longer than code may be."""
    lines = (ROOT / "DESIGN.md").read_text().splitlines()

    assert len(lines) <= LONGEST_DESIGN
    assert [line for line in lines if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_a_document_names_exist(document: Path) -> None:
    """Each rule that is not obvious, and each behaviour of another mirror, names a test that is really there."""
    named = set(re.findall(r"`(test_\w+)`", document.read_text()))

    assert named <= _names_of_tests()
    assert named or document.name != "DESIGN.md"


@functools.cache
def _names_of_tests() -> frozenset[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return frozenset(name for file in files for name in re.findall(r"def (test_\w+)", file.read_text()))


def _folders() -> dict[str, str]:
    """Return the code of each folder of the package, by its path from there."""
    folders: dict[str, str] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = str(file.parent.relative_to(PACKAGE))
        folders[name] = folders.get(name, "") + file.read_text()
    return folders


def test_every_folder_is_on_the_map() -> None:
    """The design page's map has each folder of the package, and names types and functions that are in it."""
    text = (ROOT / "DESIGN.md").read_text().split("## File map")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w./]+?)/?` \| (.*) \|$", text, re.MULTILINE))
    folders = _folders()
    missing = [
        (folder, name)
        for folder, what in rows.items()
        for name in re.findall(r"`(\w+)`", what)
        if not re.search(rf"^(class|async def|def) {name}\b", folders.get(folder, ""), re.MULTILINE)
    ]

    assert sorted(rows) == sorted(folders)
    assert missing == []


def test_a_record_s_path_can_be_walked() -> None:
    """Each `file:function` of the design page is there."""
    steps = re.findall(r"`([\w/]+\.py):([\w.]+)`", (ROOT / "DESIGN.md").read_text())

    assert len(steps) > 15
    assert [(file, name) for file, name in steps if not _is_defined(PACKAGE / file, name)] == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Also imports inside functions lead one way only."""
    graph = grimp.build_graph("mm2py", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    assert set(graphlib.TopologicalSorter(imports).static_order()) == graph.modules


def test_private_parts_of_pyspark_are_used_in_one_place() -> None:
    """A new version of PySpark may change them without a word: one file says which they are, and why."""
    private = re.compile(r"(?<!self)\._(jvm|jsc|jdf|jrdd|jc|j?gateway\b(?!_client)|jsparkSession|accumulatorServer)\b")
    users = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if private.search(file.read_text())}

    assert users == {"pipeline/spark/internals.py"}


def _is_defined(file: Path, name: str) -> bool:
    nodes: list[ast.stmt] = ast.parse(file.read_text()).body if file.exists() else []
    for part in name.split("."):
        found = [node for node in nodes if getattr(node, "name", "") == part]
        if not found:
            return False
        nodes = getattr(found[0], "body", [])
    return True


@pytest.mark.parametrize("file", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(file: Path) -> None:
    """No file is longer than 500 lines and no function longer than 50; each file says what it is for."""
    text = file.read_text()
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    too_long = [(it.name, _length(it)) for it in functions if _length(it) > LONGEST_FUNCTION]

    assert ast.get_docstring(tree)
    assert len(text.splitlines()) <= LONGEST_FILE
    assert too_long == []


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's lines without its docstring."""
    first = function.body[0]
    is_documented = ast.get_docstring(function) is not None
    begin = (first.end_lineno or 0) + 1 if is_documented else first.lineno
    return (function.end_lineno or 0) - begin + 1


def test_no_test_is_a_library() -> None:
    """What several modules of tests share is in tests/support, tests/simulated or a conftest, never in one of them."""
    elsewhere = re.compile(r"^\s*(?:from|import) tests\b(?!\.(?:support|simulated)\b).*", re.MULTILINE)
    tests = ROOT / "tests"
    found = [(str(file), hit[0]) for file in tests.rglob("*.py") for hit in elsewhere.finditer(file.read_text())]

    assert found == []


def _retired_words() -> list[str]:
    chapter = (ROOT / "CONTRIBUTING.md").read_text().split("### Words")[1].split("\n## ")[0]
    return [word for row in re.findall(r"^\| (.*?) \|", chapter, re.MULTILINE)[1:] for word in row.split(", ")]


def test_retired_words_stay_out() -> None:
    """Words that CONTRIBUTING.md retires are in neither the package nor the documents."""
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "DESIGN.md"]
    found = [(str(file.relative_to(ROOT)), word) for file in files for word in _retired_in(file.read_text())]

    assert found == []


def _retired_in(text: str) -> list[str]:
    """Find retired words, their plurals too, also in the names of a program."""
    # Names of several words have underscores or capitals between them.
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])|[_\s]+", " ", text)
    return [hit[0] for hit in _retired().finditer(spaced)]


@functools.cache
def _retired() -> re.Pattern[str]:
    words = (re.escape(word) for word in _retired_words())
    return re.compile(r"\b(?:" + "|".join(words) + r")(?:e?s)?\b", re.IGNORECASE)


@pytest.mark.parametrize(
    "text", ["a parcel", "Parcels", "before_parcels", "_PARCELS_IN_PLACE", "ParcelQueue", "stretches", "order\n  desk"]
)
def test_a_retired_word_is_found_in_any_form(text: str) -> None:
    """In a plural, inside of a name, and broken over two lines."""
    assert len(_retired_in(text)) == 1
    assert _retired_in("parcelled, the lucky, stretched") == []


def test_rooms_only_look_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import contracts of pyproject.toml hold."""
    linter = pytest.importorskip("importlinter.cli")
    # It would turn off each logger of this process, for all tests that follow.
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)

    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_can_be_run(script: Path) -> None:
    """Each script is executable and no shell trips over it; what is only sourced is not executable."""
    is_sourced = script.suffix == ".bash"

    assert os.access(script, os.X_OK) is not is_sourced
    if script.suffix != ".py":
        subprocess.run(["bash", "-n", str(script)], check=True)


def test_continuous_integration_runs_the_readme_s_test_command() -> None:
    """The CI script ends with the test command exactly as the README gives it."""
    last = (ROOT / ".ci/run").read_text().splitlines()[-1]

    assert last == "scripts/test"
    assert f"```sh\n{last}\n```" in (ROOT / "README.md").read_text()


def test_the_documents_know_the_exit_codes() -> None:
    """The table of exit codes has each one of the daemon, and no other."""
    section = (ROOT / "docs/deploying.md").read_text().split("## Exit codes")[1].split("\n## ")[0]

    assert [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)] == sorted(ExitCode)
    assert DemoExit.FAILED == ExitCode.FAILED


def test_the_changelog_knows_the_version() -> None:
    """The newest chapter of the changelog is about the version that the package says it is."""
    newest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert newest is not None
    assert mm2py.__version__ in newest[1]


def test_every_fault_has_its_tests() -> None:
    """Each row of the table of faults says what is guaranteed, and which tests hold it."""
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", FAULTS.read_text(), re.MULTILINE)]
    faults = [row for row in rows[1:] if not row[0].startswith("**")]

    assert len(faults) > 20
    assert [row for row in faults if len(row) != 3 or not all(row) or "`test_" not in row[2]] == []


def test_operators_read_no_names_of_tests() -> None:
    """The pages for operators name no test."""
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if re.search(r"\btest_\w+", page.read_text())]

    assert pages == []
