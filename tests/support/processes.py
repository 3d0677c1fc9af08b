"""`stellwerk` commands as processes of their own, for flows over kopf and HTTP.

Invariant: a process that was started is stopped when its context ends, and what it wrote is part of
the failure when it died early.
"""

import asyncio
import io
import json
import os
import ssl
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import yaml

from stellwerk_cli.cli import main
from tests.support.forked_process import ForkedProcess, start_forked

DEADLINE_SECONDS = 90.0


AnyProcess: TypeAlias = asyncio.subprocess.Process | ForkedProcess


async def start(
    output: BinaryIO,
    *arguments: str,
    module: str = "stellwerk_cli",
    is_forked: bool = True,
    environment: Mapping[str, str] | None = None,
) -> AnyProcess:
    """Start `stellwerk ARGUMENTS`; not forked, it shows how the command starts from nothing."""
    if is_forked:
        return await start_forked(module, arguments, output, environment)
    command_line = (sys.executable, "-m", module, *arguments)
    env = {**os.environ, **(environment or {})}
    return await asyncio.create_subprocess_exec(
        *command_line, stdout=output, stderr=output, env=env
    )


class Process:
    """One running command."""

    def __init__(self, process: AnyProcess, log: Path) -> None:
        self.process = process
        self.log = log

    async def stop(self) -> int:
        """Ask it to end (SIGTERM); returns its exit status."""
        if self.process.returncode is None:
            self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), 60)

    def check_alive(self) -> None:
        """Fail with its log if it has ended."""
        if self.process.returncode is not None:
            raise AssertionError(
                f"ended with {self.process.returncode}:\n{self.log.read_text(encoding='utf-8')}"
            )


@asynccontextmanager
async def running(
    log: Path, *arguments: str, module: str = "stellwerk_cli", is_forked: bool = True
) -> AsyncIterator[Process]:
    """`stellwerk ARGUMENTS` in the background, its output in `log`; `module` may stand for it."""
    with log.open("wb") as output:
        process = await start(output, *arguments, module=module, is_forked=is_forked)
    running_process = Process(process, log)
    try:
        yield running_process
    finally:
        await running_process.stop()


async def command(*arguments: str) -> tuple[int, str, str]:
    """`stellwerk ARGUMENTS` in a thread of this process: its status, what it prints, and says.

    A process that starts from nothing takes a second; one test of each command has one.
    """
    printed, said = io.StringIO(), io.StringIO()

    def run() -> int:
        with redirect_stdout(printed), redirect_stderr(said):
            return main(arguments)

    status = await asyncio.to_thread(run)
    return status, printed.getvalue(), said.getvalue()


async def until(condition: Callable[[], Awaitable[bool]], *processes: Process) -> None:
    """Wait until the condition holds; fails when it takes too long or a process dies."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await condition():
            for process in processes:
                process.check_alive()
            await asyncio.sleep(0.1)


def server_of(kubeconfig: Path) -> str:
    """The URL that a kubeconfig leads to."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    return str(config["clusters"][0]["cluster"]["server"])


async def fetch(url: str, body: dict[str, Any] | None = None) -> bytes:
    """GET, or POST of a JSON body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310

    def read() -> bytes:
        with urllib.request.urlopen(request, timeout=10, context=trusting()) as response:  # noqa: S310
            return bytes(response.read())

    return await asyncio.to_thread(read)


@cache
def trusting() -> ssl.SSLContext:
    """TLS to a server of the test's own, under whatever authority it has."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
