"""The Dockerfile and .dockerignore as tests read them."""

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
