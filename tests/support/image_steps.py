"""The Dockerfile's steps, run without a container: its paths become folders of a temporary one."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.repository import ROOT


@dataclass(frozen=True)
class Instruction:
    """One instruction, continuation lines joined, with the number of its stage."""

    stage: int
    name: str
    text: str


def instructions() -> list[Instruction]:
    """Every instruction in its order; those before the first FROM are of stage -1."""
    joined = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return list(_staged(lines))


def _staged(lines: list[str]) -> Iterator[Instruction]:
    stage = -1
    for line in lines:
        name, _, text = line.partition(" ")
        stage += name == "FROM"
        yield Instruction(stage, name, text.strip())


def sent_to_the_builder() -> list[Path]:
    """What .dockerignore leaves over, which names its exceptions one by one."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [Path(line[1:]) for line in lines if line.startswith("!")]


@dataclass(frozen=True)
class Build:
    """The build stage under a folder, with an interpreter in the place of the base image's."""

    root: Path
    python: Path

    def run(self) -> None:
        """Run the stage's COPY and RUN instructions.

        Raises:
            AssertionError: an instruction failed, with what it printed.
        """
        (self.root / "src").mkdir(parents=True)
        for each in instructions():
            if each.stage == 0 and each.name == "COPY":
                self._copy(each.text.split())
            elif each.stage == 0 and each.name == "RUN":
                self._execute(each.text)

    def _copy(self, paths: list[str]) -> None:
        *sources, target = paths
        context = sent_to_the_builder()
        for source in map(Path, sources):
            assert source in context, f"{source} is not sent to the builder"
            place = self.root / "src" / (source.name if target == "./" else target)
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, place, ignore=ignored)
            else:
                shutil.copy(ROOT / source, place)

    def _execute(self, text: str) -> None:
        here = re.sub(r"(?<![\w.])/(opt|wheels)\b", rf"{self.root}/\1", text)
        command = re.sub(r"(?<![\w./-])python(?= -m)", str(self.python), here)
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=self.root / "src",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
