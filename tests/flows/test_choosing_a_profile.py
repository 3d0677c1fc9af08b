"""docs/choosing-a-profile.md: its profile, its command and its answer."""

import json
import re
import shlex
from pathlib import Path

import pytest

from stellwerk.cli import main
from tests.support.example_cluster import kubectl_list
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "choosing-a-profile.md").read_text()


def block(language: str, beginning: str) -> str:
    """The block of the page that begins so."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return next(each for each in blocks if each.startswith(beginning))


def test_the_page_tells_how_many_nodes_fewer_another_profile_would_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.json").write_text(json.dumps(kubectl_list()))
    Path("packing.yaml").write_text(block("yaml", "apiVersion"))
    program, *arguments = shlex.split(block("sh", "stellwerk simulate"))
    assert program == "stellwerk"
    assert main([*arguments, "--jobs", "1"]) == 0
    _, answer = capsys.readouterr().out.split("\n\n")
    assert answer == block("text", "figure")
