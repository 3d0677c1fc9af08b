"""The commands of a document, run line by line as a reader would type them.

A block of the language `console` holds commands, each behind `$ ` (continued behind `> `), and what
they print; a line with `…` stands for any text there. Between blocks, `<!-- here: WORDS -->` says
what happens outside of this shell. A block that is not run says why behind its language:
`sh not run: needs docker`. Invariant: the commands of one section share one bash, and each ends
before the next begins.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_MARK = "--- ended with"
_FENCED = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = " not run: "
_HERE = re.compile(r"<!-- here: (.*) -->")
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Block:
    """A block of a document in a language, as a reader copies it."""

    document: Path
    line: int
    """Where it begins."""
    language: str
    excuse: str
    """Why it is not run; empty: it is."""
    text: str


def blocks(document: Path) -> list[Block]:
    """Every block of a document that names its language.

    Raises:
        AssertionError: what stands behind the language of one is no reason.
    """
    text = document.read_text(encoding="utf-8")
    found = []
    for match in _FENCED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        indent, language, info, content = match.groups()
        assert not info or (info.startswith(_NOT_RUN) and info != _NOT_RUN), (
            f"{document}:{line}: {info.strip()!r} does not say why the block is not run"
        )
        excuse = info.removeprefix(_NOT_RUN)
        found.append(Block(document, line, language, excuse, _without(indent, content)))
    return found


def _without(indent: str, text: str) -> str:
    return "\n".join(line.removeprefix(indent) for line in text.split("\n"))


@dataclass
class Command:
    """One command, and the lines that it prints among others, in this order."""

    text: str
    prints: list[str] = field(default_factory=list)

    def check(self, output: str) -> None:
        """Compare what it printed with the document.

        Raises:
            AssertionError: a line is missing, or not where the document has it.
        """
        rest = iter(output.splitlines())
        for line in self.prints:
            assert any(_is_like(line, each) for each in rest), (
                f"$ {self.text}\ndoes not print {line!r} there:\n{output}"
            )


@dataclass(frozen=True)
class Happening:
    """What the test does in the place of the reader's administrator."""

    words: str


def sections(document: Path) -> dict[str, list[Command | Happening]]:
    """The steps under each heading of the second level that has any."""
    found: dict[str, list[Command | Happening]] = {}
    heading, within = "", False
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            within = line == "```console"
        elif within:
            _add(found.setdefault(heading, []), line)
        elif line.startswith("## "):
            heading = line.removeprefix("## ")
        elif match := _HERE.fullmatch(line):
            found.setdefault(heading, []).append(Happening(match[1]))
    return found


def _add(steps: list[Command | Happening], line: str) -> None:
    if line.startswith("$ "):
        steps.append(Command(line.removeprefix("$ ")))
        return
    last = steps[-1]
    assert isinstance(last, Command), f"what prints {line!r}?"
    if line.startswith("> "):
        last.text += "\n" + line.removeprefix("> ")
    elif line.strip():
        last.prints.append(line)


class Shell:
    """A bash that runs one command after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, command: str) -> tuple[int, str]:
        """The exit status of a command, and what it wrote to either stream."""
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        to.write(f"{command}\nprintf '\\n{_MARK} %s\\n' $?\n".encode())
        await to.drain()
        lines: list[str] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await back.readline()).decode():
                if line.startswith(_MARK):
                    return int(line.removeprefix(_MARK)), "".join(lines)
                lines.append(line)
        raise AssertionError(f"the shell ended: {command}\n{''.join(lines)}")

    async def take(self, command: Command) -> None:
        """Run a command of a document.

        Raises:
            AssertionError: it failed, or did not print what the document says.
        """
        status, output = await self.run(command.text)
        assert status == 0, f"$ {command.text}\nended with {status}:\n{output}"
        command.check(output)


def _is_like(shown: str, printed: str) -> bool:
    """Whether a line is the one of the document: however wide its columns, and with any text
    for `…`.
    """
    pattern = r"\s+".join(
        ".*".join(map(re.escape, word.split("…"))) for word in shown.replace("\t", " ").split()
    )
    return re.fullmatch(rf"\s*{pattern}\s*", printed) is not None


@asynccontextmanager
async def shell(
    directory: Path, environment: Mapping[str, str], *programs: Path
) -> AsyncIterator[Shell]:
    """A bash in a directory, which finds these programs by their names."""
    links = directory / ".programs"
    links.mkdir()
    for program in programs:
        (links / program.name.partition(".")[0]).symlink_to(program)
    process = await asyncio.create_subprocess_exec(
        *("bash", "--norc", "--noprofile"),
        cwd=directory,
        env={"PATH": f"{links}:{os.defpath}", "HOME": str(directory), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Shell(process)
    finally:
        assert process.stdin is not None
        if process.returncode is None:
            # What a failed step has left in the background ends with the shell.
            process.stdin.write(b"\nkill $(jobs -p) 2>/dev/null; wait; exit\n")
            process.stdin.close()
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
