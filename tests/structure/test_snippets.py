"""Every block of a page that a reader may copy is run or read by a test, or says why it is not.

Blocks of commands and of Python are run by the tests that are named here. Those of YAML are read
here: manifests as strictly as an API server reads them, profiles with their plugins and arguments,
files of options by the command that takes them.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import KIND, load_profile
from stellwerk_cluster.faults.table import read_fault_table
from stellwerk_cluster.hollow.device_descriptions import read_description
from stellwerk_cluster.hollow.lifecycle import parse_stages
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.manifest_reader import check_fields
from stellwerk_simulation.sweep import read_grid
from tests.flows.test_printed_commands import PAGES
from tests.support.repository import ROOT
from tests.support.shell_steps import Block, blocks

DOCUMENTS: Final = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "made"),
]
COPIED: Final = frozenset({"bash", "console", "python", "sh", "yaml"})
_BEGUN: Final = re.compile(r"^ *(?:`{3,}|~{3,})(\w+)", re.MULTILINE)
RUN_BY: Final[Mapping[str, tuple[str, str]]] = {
    "docs/choosing-a-profile.md": ("console", "test_choosing_a_profile"),
    "docs/doctor.md": ("console", "test_doctor"),
    "docs/embedded-cluster-in-ci.md": ("console python", "test_embedded_cluster_in_ci"),
    "docs/gangs.md": ("console", "test_gang_walk_through"),
    "docs/operations.md": ("console", "test_operations"),
    "docs/performance.md": ("console", "test_bench_command"),
    "docs/start.md": ("console", "test_start_page"),
    "docs/writing-a-plugin.md": ("python yaml", "test_plugin_page"),
    **{
        f"docs/tutorials/{path.name}": ("console", "test_start_page")
        for path in (ROOT / "docs" / "tutorials").glob("*.md")
    },
}
"""Pages of which a module of tests/flows runs every block of these languages without an excuse."""


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def is_run(block: Block) -> bool:
    languages, _ = RUN_BY.get(name_of(block.document), ("", ""))
    if block.language == "sh":
        return block.document.stem in PAGES
    return block.language in languages.split()


def copied(*languages: str) -> list[Block]:
    """All blocks of these languages without an excuse."""
    return [
        block
        for document in DOCUMENTS
        for block in blocks(document)
        if block.language in languages and not block.excuse
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_a_block_is_run_or_says_why_it_is_not(document: Path) -> None:
    found = [block for block in blocks(document) if block.language in COPIED]
    begun = [word for word in _BEGUN.findall(document.read_text()) if word in COPIED]
    assert len(found) == len(begun), "a block is not read as one"
    assert [
        f"{name_of(document)}:{block.line} ({block.language})"
        for block in found
        if not block.excuse and block.language != "yaml" and not is_run(block)
    ] == []
    needless = [
        block.line for block in found if block.excuse and block.language in {"yaml", "python"}
    ]
    assert needless == [], "it can be read and run without a cluster"


def test_the_tests_that_are_named_read_these_pages() -> None:
    for document, (languages, module) in RUN_BY.items():
        text = (ROOT / "tests" / "flows" / f"{module}.py").read_text()
        path = Path(document)
        assert path.name in text or (path.parent.name in text and "*.md" in text), document
        if path.parent.name != "tutorials":
            present = {
                block.language
                for block in copied(*languages.split())
                if name_of(block.document) == document
            }
            assert present == set(languages.split()), document
    for page in PAGES:
        assert any(block.document.stem == page for block in copied("sh")), page


# --- YAML -----------------------------------------------------------------------------------------


def read_profile(manifest: JsonObject) -> None:
    load_profile(manifest, known_plugins())


def read_profile_part(document: Any) -> None:
    """A spec, or some fields of one."""
    spec = document.get("spec", document)
    read_profile({"spec": spec if "shadowOf" in spec else {"schedulerName": "part", **spec}})


def read_file(reader: Callable[[Path], object]) -> Callable[[str, Path], object]:
    def read(text: str, folder: Path) -> None:
        (folder / "own.yaml").write_text((ROOT / "manifests/profiles/default.yaml").read_text())
        (folder / "file.yaml").write_text(text)
        reader(folder / "file.yaml")

    return read


READERS: Final[Mapping[str, Callable[[str, Path], object]]] = {
    "clusters": read_file(read_grid),
    "deviceClasses": read_file(lambda path: read_description(str(path))),
    "faults": read_file(read_fault_table),
    "stages": lambda text, _: parse_stages(yaml.safe_load(text), "stages"),
}
"""What reads a file of options, by a key that it has."""


@pytest.mark.parametrize(
    "block", copied("yaml"), ids=lambda block: f"{name_of(block.document)}:{block.line}"
)
def test_a_block_of_yaml_is_read_as_it_stands(block: Block, tmp_path: Path) -> None:
    if is_run(block):
        return
    documents = list(yaml.safe_load_all(block.text))
    assert documents
    for document in documents:
        if "kind" not in document:
            keys = READERS.keys() & document.keys()
            for key in keys:
                READERS[key](block.text, tmp_path)
            if not keys:
                read_profile_part(document)
            continue
        check_fields(f"{name_of(block.document)}:{block.line}", document)
        if document["kind"] == KIND:
            read_profile(document)
