"""The image of this repository, built once for all of its tests."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.built_image import base_image, built, mounted


@dataclass(frozen=True)
class BuiltImage:
    """The image, the base that it was built in, and its files."""

    name: str
    base: str
    root: Path


@pytest.fixture(scope="session")
def image(
    require_tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BuiltImage]:
    if os.geteuid() != 0:
        pytest.skip("only root can build a root file system and run containers")
    for tool in ("debootstrap", "buildah", "runc"):
        require_tool(tool)
    directory = tmp_path_factory.mktemp("image")
    with base_image(directory) as base, built(base, directory) as name, mounted(name) as root:
        yield BuiltImage(name, base, root)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: `make image-test` runs them, and nothing else does."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.image)
            item.add_marker(pytest.mark.timeout(900))
