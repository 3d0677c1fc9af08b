"""A credential plugin that leaves a process in the background, as one that starts an agent does."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stellwerk.client.exec_plugin import ExecPlugin
from stellwerk_kube.errors import ConfigurationError

ANSWER = """
echo '{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'
"""
AGENT = "setsid sleep 60 %s & echo $! > agent.pid"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((tmp_path / "agent.pid").read_text()), signal.SIGKILL)


def plugin(folder: Path, script: str, limit_seconds: float) -> ExecPlugin:
    (folder / "plugin").write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
    (folder / "plugin").chmod(0o700)
    fields = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}
    return ExecPlugin(fields, {}, folder, limit_seconds)


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_an_agent_may_keep_the_standard_error(folder: Path) -> None:
    credential = await plugin(folder, AGENT % ">/dev/null" + ANSWER, 20).run()
    assert credential.token == "t"


async def test_a_failed_plugin_with_an_agent_is_quoted(folder: Path) -> None:
    failing = plugin(folder, f"{AGENT % '>/dev/null'}\necho no card is there >&2\nexit 3", 20)
    with pytest.raises(ConfigurationError, match=r"ended with status 3\. no card is there"):
        await failing.run()


@pytest.mark.parametrize("then", [ANSWER, "\nsleep 60"], ids=["it ends", "it hangs"])
async def test_nothing_stays_open_after_the_time_out(folder: Path, then: str) -> None:
    with contextlib.suppress(ConfigurationError):  # the loop opens descriptors of its own
        await plugin(folder, "exit 1", 20).run()
    before = descriptors()
    late = plugin(folder, AGENT % "" + then, 0.5)
    with pytest.raises(ConfigurationError, match=r"no answer within 0.5 s"):
        await asyncio.wait_for(late.run(), 20)
    await asyncio.sleep(0.05)
    assert descriptors() == before
