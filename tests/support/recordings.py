"""What real components said on the wire: recordings that lie beside the clone, not in it.

A test that needs one asks for it here and skips, with the reason, where it is not there; a clone
alone runs every test whose data is committed.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from stellwerk_kube.json_values import JsonObject
from tests.support.repository import ROOT

TRANSCRIPTS: Final = ROOT.parent / "shared" / "transcripts"
"""Of an API server, kubectl and kube-scheduler; and the modules that read and compare them."""

WIRE_RELEASE: Final = os.environ.get("STELLWERK_WIRE_RELEASE", "1.36")
"""The release of the embedded cluster that answers as recorded; recorded was 1.36."""


def transcript(name: str) -> Path:
    """A file of the transcripts, by its path there."""
    path = TRANSCRIPTS / name
    if not path.exists():
        pytest.skip(f"the recording is not beside this clone: {path}")
    return path


def scenarios(folder: str = "scheduler") -> list[str]:
    """The names of kube-scheduler's scenarios; none where nothing is recorded."""
    return sorted(path.stem for path in (TRANSCRIPTS / folder).glob("*.json"))


def scenario(name: str, folder: str = "scheduler") -> JsonObject:
    """One scenario of kube-scheduler: its objects, requests, events and metrics."""
    text = transcript(f"{folder}/{name}.json").read_text(encoding="utf-8")
    recorded: JsonObject = json.loads(text)
    return recorded


@contextmanager
def transcript_modules(*names: str) -> Iterator[list[ModuleType]]:
    """Modules that lie with the transcripts; each can import those before it."""
    loaded: list[ModuleType] = []
    try:
        for name in names:
            spec = importlib.util.spec_from_file_location(name, transcript(f"{name}.py"))
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            loaded.append(module)
            spec.loader.exec_module(module)
        yield loaded
    finally:
        for module in loaded:
            del sys.modules[module.__name__]
