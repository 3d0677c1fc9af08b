"""The map of the architecture and the documents agree with the tree: what they name exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.structure import release_sentence
from tests.support.repository import ROOT

OPERATOR: Final = ROOT / "operator"
SOURCES: Final = OPERATOR / "stellwerk"
DOCUMENTS: Final = sorted(
    path
    for folder in ("", "docs/**/", "tests/**/")
    for path in ROOT.glob(f"{folder}*.md")
    if path.parent.name != "made"
)

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#:]+)[^):]*\)")
_PATH = re.compile(r"\w[\w.-]*(/[\w.-]+)*(/|\.(json|lock|md|py|svg|toml|yaml))")
_MODULE = re.compile(r"(?<![\w./-])(?!stellwerk\.dev/)((?:stellwerk(?:_[a-z]+)?|tests)(?:\.\w+)+)")
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
"""A test, by its path below tests/."""
_TARGET = re.compile(r"\bmake ([a-z][a-z-]+)`")
_TREE_NAME = re.compile(r"(?:^ *|(?<=\.py)  )([\w/]+(?:/|\.py))(?= |$)")
"""A folder or a module at the beginning of a line, or behind another module."""


def paths(document: Path) -> Iterator[str]:
    """Every file or directory that a document links to, or names in backticks."""
    text = _FENCED.sub("", document.read_text())
    yield from _LINK.findall(text)
    for code in _IN_BACKTICKS.findall(text):
        if _PATH.fullmatch(code):
            yield code


def modules(text: str) -> Iterator[str]:
    """Every dotted name of the project's packages, commands in fenced blocks included."""
    text = text.replace("stellwerk.dev/", "")  # the prefix of annotations is no module
    return (name.rstrip(".") for name in _MODULE.findall(text))


def map_of_the_layout() -> list[str]:
    """The paths below operator/ that the map in docs/architecture.md names."""
    tree = (
        (ROOT / "docs" / "architecture.md").read_text().split("→ client → API\n")[1].split("```")[0]
    )
    found: list[str] = []
    folders: list[tuple[int, str]] = []
    """The folders that the line is in, with their indentation."""
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        folders = [each for each in folders if each[0] < indent]
        folder = "".join(name for _, name in folders)
        names = [f"{folder}{name}" for name in _TREE_NAME.findall(line)]
        found += [name.removeprefix("operator/") for name in names]
        if (at := _TREE_NAME.search(line)) and at[1].endswith("/"):
            folders.append((indent, at[1]))
    return found


def is_path(name: str, document: Path) -> bool:
    if made := re.fullmatch(r"(?:docs/)?reference/made/([\w-]+)\.md", name):  # by `make docs`
        return f'"{made[1]}": ' in (ROOT / "docs" / "reference_pages.py").read_text("utf-8")
    places = (document.parent, ROOT, OPERATOR, SOURCES)
    return any((place / name).exists() for place in places)


def is_module(name: str) -> bool:
    """Whether it is a module, a package, or a name in a module."""
    for root in (ROOT / "operator", ROOT):
        path = root.joinpath(*name.split("."))
        if path.is_dir() or path.with_suffix(".py").is_file():
            return True
        module = path.parent.with_suffix(".py")
        if module.is_file() and re.search(rf"\b{path.name}\b", module.read_text()):
            return True
    return False


def is_test(file: str, test: str) -> bool:
    """Whether a file below tests/ has this test."""
    path = ROOT / "tests" / file
    return path.is_file() and f"def {test}(" in path.read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    unknown = [path for path in paths(document) if not is_path(path, document)]
    unknown += [name for name in modules(text) if not is_module(name)]
    unknown += [f"{file}::{test}" for file, test in _TEST.findall(text) if not is_test(file, test)]
    unknown += [f"make {name}" for name in _TARGET.findall(text) if name not in targets]
    assert not unknown, f"it names what is not there: {', '.join(unknown)}"


def test_the_map_has_a_row_for_every_room_and_every_module_beside_them() -> None:
    rooms = {f"{path.parent.relative_to(OPERATOR)}/" for path in OPERATOR.glob("*/**/__init__.py")}
    rooms = {room for room in rooms if not room.startswith("stellwerk_plugins/")}
    beside = (*SOURCES.glob("[!_]*.py"), *(OPERATOR / "stellwerk_cli").glob("[!_]*.py"))
    present = rooms | {str(path.relative_to(OPERATOR)) for path in beside}
    assert present - set(map_of_the_layout()) == set()


def test_every_path_of_the_map_exists() -> None:
    rows = map_of_the_layout()
    assert rows
    assert [path for path in rows if not (ROOT / "operator" / path).exists()] == []


def test_names_in_the_glossary_are_names_in_the_code() -> None:
    code = "\n".join(path.read_text() for path in OPERATOR.rglob("*.py"))
    names = {name.strip("_") for name in re.findall(r"\w+", code)}
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    here = [row.split(" | ")[2] for row in glossary.splitlines() if row.count(" | ") == 3]
    mentioned = [name for cell in here for name in _IN_BACKTICKS.findall(cell)]
    unknown = [name for name in mentioned if not names.issuperset(re.findall(r"\w+", name))]
    assert mentioned
    assert not unknown, f"the glossary names what is not in the code: {', '.join(unknown)}"


def test_every_document_is_in_the_index_of_the_site_once() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.DOTALL | re.MULTILINE)
    listed = [
        line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")
    ]
    pages = [
        path for path in ROOT.glob("docs/**/*.md") if path.name not in {"README.md", "index.md"}
    ]
    present = [path for path in pages if path.parent.name != "made"]
    names = [str(path.relative_to(ROOT / "docs").with_suffix("")) for path in present]
    assert sorted(names) == sorted(name for name in listed if "/made/" not in name)


def test_every_document_begins_with_the_question_that_it_answers() -> None:
    pages = [
        path for path in ROOT.glob("docs/**/*.md") if path.name not in {"README.md", "index.md"}
    ]
    beginnings = {path: path.read_text().split("\n\n")[1] for path in pages}
    assert [
        str(path)
        for path, text in beginnings.items()
        if path.parent.name != "made" and not re.match(r"[A-Z][^.]*\?(?:\s|$)", text)
    ] == []


@pytest.mark.parametrize("page", release_sentence.PAGES)
def test_a_page_says_which_release_decisions_follow_in_the_one_sentence(page: str) -> None:
    text = (ROOT / page).read_text()
    assert text == release_sentence.written(text), "python -m tests.structure.release_sentence"


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_readmes_figures_are_those_of_the_page_on_performance() -> None:
    begin, end = "<!-- beside kube-scheduler -->", "<!-- end of beside kube-scheduler -->"
    table = (ROOT / "README.md").read_text().split(begin)[1].split(end)[0]
    shown = [row.strip("| ").split(" | ") for row in table.strip().splitlines()[2:]]
    page = (ROOT / "docs" / "performance.md").read_text().split("<!-- comparison -->")[1]
    page = page.split("<!-- end of comparison -->")[0]
    rows = [row.strip("| ").split(" | ") for row in page.splitlines() if row.startswith("| ")]
    by_workload = {row[0]: row for row in rows}
    basic = by_workload["basic, pods/s"]
    spread = by_workload["20,000 nodes: spread, pods/s"]
    assert [figures for _, *figures in shown] == [
        basic[1:3],
        spread[1:3],
        [f"{basic[5]} ms", f"{basic[6]} ms"],
    ]


def places_to_look() -> list[tuple[str, str]]:
    """(module below operator/stellwerk, name) of what the way of a pod says where to look for."""
    text = (ROOT / "docs" / "the-way-of-a-pod.md").read_text().split("## Where to look\n")[1]
    return [
        (module, name)
        for module, names in re.findall(r"`([\w/]+)`: ((?:`[\w.]+`(?:, )?)+)", text)
        for name in _IN_BACKTICKS.findall(names)
    ]


def test_what_is_to_be_looked_up_is_where_it_is_said_to_be() -> None:
    places = places_to_look()
    assert len(places) > 20
    missing = []
    for module, name in places:
        root = OPERATOR if module.startswith("stellwerk_") else SOURCES
        text = (root / f"{module}.py").read_text()
        *classes, last = name.split(".")
        defined = re.search(rf"\b(?:class|def) {last}\b", text)
        if not (defined and all(f"class {each}" in text for each in classes)):
            missing.append(f"{module}: {name}")
    assert missing == []


def test_names_are_found_in_text() -> None:
    text = "`python -m tests.benchmarks.suite`, scheduling.stellwerk.dev/v1, `stellwerk.app`."
    assert list(modules(text)) == ["tests.benchmarks.suite", "stellwerk.app"]
    assert is_module("stellwerk.app.run")
    assert not is_module("stellwerk.app.nothing_of_the_kind")
    assert not is_module("stellwerk.rooms")


def test_the_map_of_support_has_each_of_its_modules_once() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    rows = text.split("## Map of support\n")[1].split("\n## ")[0].splitlines()
    named = [name for row in rows if row.startswith("| ") for name in _IN_BACKTICKS.findall(row)]
    folder = ROOT / "tests" / "support"
    present = [path.stem for path in folder.glob("[!_]*.py") if not path.stem.startswith("test_")]
    assert sorted(named) == sorted(present)
