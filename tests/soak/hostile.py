"""`make soak-hostile`: hostile clients and tenants for long, and operators that are killed.

`python -m tests.soak.hostile --minutes N` runs `tests.soak.standing` all along: processes that
live for the whole time, and their memory. Beside it, it takes turns at full strength: changed bytes
at every reader with a new seed, a flood of connections, sixteen askers, a hostile tenant beside
four others; and between them an operator that is killed, also in the middle of a group's bindings,
and an API server restored from older data. It prints what each has measured; the exit status is 1
if anything was wrong. One part can be had alone: `--only NAME --seed N`, `--only standing`.
"""

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from tests.support.fault_cases import CASES
from tests.support.fault_load import Load
from tests.support.fault_runs import run_case

STANDING: Final = "standing"
FUZZ_SECONDS: Final = 600.0
_LOAD: Final = Load(pods=1000, per_second=100, nodes=50)
_PATIENCE_SECONDS: Final = 120.0
_SEEDS: Final = 1 << 32
_FIGURES: Final = re.compile(r"^(?:peers|RSS|answers|ms at|seed).*$", re.MULTILINE)
"""The lines in which tests say what they have measured."""


@dataclass(frozen=True)
class Told:
    """What came of a turn."""

    wrong: bool
    figures: str


Turn: TypeAlias = Callable[[int], Awaitable[Told]]


async def _ran(*arguments: str) -> Told:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode(errors="replace")
    figures = "; ".join(_FIGURES.findall(text))
    wrong = process.returncode != 0
    return Told(wrong, text[-4000:] if wrong else figures)


def _test(path: str, marked: str = "long") -> Turn:
    async def turn(_: int) -> Told:
        return await _ran("pytest", "-q", "-s", "-m", marked, "-p", "no:cacheprovider", path)

    return turn


async def _fuzz(seed: int) -> Told:
    return await _ran(
        *("tests.support.fuzzing", "--seconds", str(FUZZ_SECONDS), "--seed", str(seed))
    )


def _fault(name: str) -> Turn:
    async def turn(seed: int) -> Told:
        case = CASES[name]
        patient = replace(
            case,
            recovery_seconds=case.recovery_seconds + _PATIENCE_SECONDS,
            audit_seconds=case.audit_seconds + _PATIENCE_SECONDS,
        )
        with tempfile.TemporaryDirectory() as directory:
            try:
                outcome = await run_case(patient, seed, Path(directory), _LOAD)
            except AssertionError as failure:
                return Told(wrong=True, figures=str(failure))
        return Told(bool(outcome.wrongs), str(outcome)[:2000])

    return turn


TURNS: Final[dict[str, Turn]] = {
    "fuzz": _fuzz,
    "killed": _fault("gangs-killed"),
    "killed between bindings": _fault("gangs-killed-between-bindings"),
    "tenants": _test("tests/flows/test_tenants.py", "soak"),
    "older data": _test("tests/flows/test_faults_of_the_whole.py"),
    "askers": _test("tests/flows/test_sixteen_askers.py", "soak"),
    "flood": _test("tests/flows/test_limits.py", "soak"),
}

ORDER: Final = (
    *("fuzz", "killed", "tenants", "killed between bindings", "older data", "killed"),
    *("askers", "killed between bindings", "flood", "older data", "killed"),
)


async def _soak(options: argparse.Namespace) -> int:
    if options.only == [STANDING]:
        return await _stand(options)
    if options.only:
        return await _turns(options)
    return sum(await asyncio.gather(_stand(options), _turns(options)))


async def _stand(options: argparse.Namespace) -> int:
    """Run what lives as long as the soak; its lines are those of this process."""
    given = ("--minutes", str(options.minutes), "--seed", str(options.seed))
    arguments = (sys.executable, "-m", "tests.soak.standing", *given)
    process = await asyncio.create_subprocess_exec(*arguments)
    return int(await process.wait() != 0)


async def _turns(options: argparse.Namespace) -> int:
    seeds, ends, wrong = random.Random(options.seed), time.monotonic() + 60 * options.minutes, 0
    while True:
        for name in options.only or ORDER:
            seed = options.seed if options.only else seeds.randrange(_SEEDS)
            began = time.monotonic()
            told = await TURNS[name](seed)
            wrong += told.wrong
            verdict = "WRONG" if told.wrong else "well"
            took = time.monotonic() - began
            sys.stdout.write(f"{name}, seed {seed}, {took:.0f} s: {verdict}: {told.figures}\n")
            sys.stdout.flush()
            if time.monotonic() > ends:
                return wrong
        if options.only:
            return wrong


def main() -> int:
    """Run; the exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(_SEEDS))
    parser.add_argument("--only", action="append", choices=[STANDING, *sorted(TURNS)])
    return int(asyncio.run(_soak(parser.parse_args())) > 0)


if __name__ == "__main__":
    sys.exit(main())
