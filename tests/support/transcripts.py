"""The modules that come with the recorded transcripts: their comparison and their replay."""

import importlib.util
import sys
from types import ModuleType

from tests.support.repository import TRANSCRIPTS


def load(name: str) -> ModuleType:
    """The module of that name beside the recordings, known to the other one by its name."""
    spec = importlib.util.spec_from_file_location(name, TRANSCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
