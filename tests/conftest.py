"""What every test may ask for: the tools of the machine it runs on."""

import os
import shutil
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """The path of a program, or the test skips; with STELLWERK_REQUIRE_TOOLS set, it fails."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is not None:
            return path
        reason = f"{program} is not on the PATH"
        if os.environ.get("STELLWERK_REQUIRE_TOOLS"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return find
