"""`stellwerk run` as a process that is started again whenever it ends, as a kubelet would.

Runs under faults kill, stop and wake it. Invariant: an ending that nothing explains is noted with
its status, and what was stopped is woken before it is ended.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.support.endings import Life, lost_lease
from tests.support.processes import AnyProcess, start

_RESTART_SECONDS = 0.5
_START_SECONDS = 60.0
_END_SECONDS = 20.0
_PROBE_SECONDS = 0.5
_COMPARED = re.compile(r"cache compared with the API: (.*)")
STELLWERK = "stellwerk_cli"


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class SupervisedOperator:
    """One replica."""

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        *arguments: str,
        module: str = STELLWERK,
    ) -> None:
        self.log = log
        self.unexpected_endings: list[int] = []
        self.lost_leases = 0
        """How often it ended since it was paused, or not on the processor, for too long."""
        self.failed_probes: list[str] = []
        """What /livez said whenever it was not well."""
        self.starts = 0
        self.live = asyncio.Event()
        """Set while the process that runs now has answered a probe."""
        self._address = f"127.0.0.1:{free_port()}"
        self._module = module
        self._arguments = (
            *("run", "--kubeconfig", str(kubeconfig)),
            *("--bind-address", self._address, "--plain-http", *arguments),
        )
        self._process: AnyProcess | None = None
        self._life = Life()
        self._log_start = 0
        self._over = False

    async def run(self) -> None:
        """Keep it running until cancelled."""
        with self.log.open("ab") as output:
            while not self._over:
                self._life = Life()
                self._log_start = self.log.stat().st_size
                self.starts += 1
                self._process = await start(output, *self._arguments, module=self._module)
                status = await self._process.wait()
                self.live.clear()
                self.lost_leases += lost_lease(status, self._said())
                if not self._life.is_right(status, self._said()):
                    self.unexpected_endings.append(status)
                await asyncio.sleep(_RESTART_SECONDS)

    async def probe(self) -> None:
        """Ask /livez again and again, until cancelled."""
        async with aiohttp.ClientSession() as session:
            while True:
                await asyncio.sleep(_PROBE_SECONDS)
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    timeout = aiohttp.ClientTimeout(total=5)
                    url = f"http://{self._address}/livez"
                    async with session.get(url, timeout=timeout) as answer:
                        if answer.status == 200:
                            self._life.was_live = True
                            self.live.set()
                        else:
                            self.failed_probes.append(" ".join((await answer.text()).split()))

    def kill(self) -> None:
        """End it without warning."""
        self._ask_to_end(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self._ask_to_end(signal.SIGTERM)

    def wake(self) -> None:
        """Let it go on, if it was stopped."""
        self._signal(signal.SIGCONT)

    async def pause(self, seconds: float) -> None:
        """Stop it in the middle of whatever it does, and wake it."""
        self._signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.wake()

    async def audited(self, patience_seconds: float) -> str:
        """What a comparison of its cache with the API finds, at last."""
        loop = asyncio.get_running_loop()
        found, asked, deadline = "it did not answer", 0, 0.0
        while found != "no discrepancies":
            await self._until_live()
            if asked != self.starts:  # another process, that has its patience before it
                asked, deadline = self.starts, loop.time() + patience_seconds
            if loop.time() > deadline:
                break
            found = await self._audit_once(deadline) or found
            await asyncio.sleep(0.1)
        return found

    async def end(self) -> int | None:
        """Ask it to end; 0 if it ends well, otherwise its status, or None if it does not end."""
        self._over = True
        process = self._process
        if process is None:
            return 0
        self.wake()
        self.terminate()
        try:
            status = await asyncio.wait_for(process.wait(), _END_SECONDS)
            return 0 if self._life.is_right(status, self._said()) else status
        except TimeoutError:
            return None
        finally:
            self.kill()
            await process.wait()

    async def _until_live(self) -> None:
        """One that is just starting does not listen to signals yet, and would end by them."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.live.wait(), _START_SECONDS)

    async def _audit_once(self, deadline: float) -> str | None:
        before = len(_COMPARED.findall(self._text()))
        self._signal(signal.SIGUSR2)
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.2)
            found: list[str] = _COMPARED.findall(self._text())
            if len(found) > before:
                return found[-1]
        return None

    def _said(self) -> str:
        """What the process that was started last has written."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _ask_to_end(self, number: signal.Signals) -> None:
        self._life.signals.append(number)
        self.live.clear()
        self._signal(number)

    def _text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _signal(self, number: int) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)


@asynccontextmanager
async def supervised(operator: SupervisedOperator) -> AsyncIterator[SupervisedOperator]:
    """Keep a replica running until the block ends."""
    tasks = [asyncio.create_task(operator.run()), asyncio.create_task(operator.probe())]
    try:
        yield operator
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await operator.end()
