"""A package of plugins in an image made of this one, by the Dockerfile that the page shows."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.flows.test_example_plugin import PACKAGE, case_of
from tests.image.conftest import BuiltImage
from tests.support.built_image import built, container, mounted
from tests.support.repository import ROOT


def write_context(image: BuiltImage, context: Path) -> None:
    """The Dockerfile of the page, on this image, and the wheel of the example."""
    page = (ROOT / "docs" / "writing-a-plugin.md").read_text(encoding="utf-8")
    (dockerfile,) = re.findall(r"```dockerfile\n(.*?)```", page, re.DOTALL)
    context.mkdir()
    named = re.sub(r"(?m)^(ARG STELLWERK)=.*", rf"\1={image.name}", dockerfile)
    (context / "Dockerfile").write_text(named)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
    alone = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", context / "dist"]
    done = subprocess.run([*pip, *alone, PACKAGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_a_second_stage_adds_a_plugin(image: BuiltImage, tmp_path: Path) -> None:
    write_context(image, tmp_path / "context")
    case = case_of("it", "BlinkingLightScorer", {"dark": "1", "bright": "9"})
    (tmp_path / "case.json").write_text(json.dumps(case))
    tag = "localhost/stellwerk-test-plugin"
    with (
        built(image.base, tmp_path, tmp_path / "context", tag) as name,
        mounted(name) as root,
        container(
            name,
            root,
            tmp_path / "it",
            ["decide", "/case.json"],
            mounts={"/case.json": tmp_path / "case.json"},
        ) as running,
    ):
        status = running.process.wait(60)
    printed = running.log.read_text()
    assert status == 0, printed
    assert json.loads(printed)["selected"] == ["bright"]
