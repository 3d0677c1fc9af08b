"""`stellwerk up --detach` and `stellwerk down`: what lives in the background, and what is left."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk_cli.commands.detached_cluster import start
from tests.support.nameless_user import VARIABLES
from tests.support.processes import command, fetch, server_of

PRODUCTION = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "production", "cluster": {"server": "https://192.0.2.1"}}],
    "users": [{"name": "me", "user": {"token": "mine"}}],
    "contexts": [{"name": "production", "context": {"cluster": "production", "user": "me"}}],
    "current-context": "production",
}


def up(kubeconfig: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as a user without a home, whose output goes to a pipe."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    words = ("up", "--detach", "--nodes", "1", "--kubeconfig", str(kubeconfig), *more)
    return subprocess.run(
        [sys.executable, "-m", "stellwerk_cli", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )


def state_of(kubeconfig: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubeconfig.with_name(f"{kubeconfig.name}.up").read_text())
    return found


def crash(kubeconfig: Path) -> None:
    os.kill(state_of(kubeconfig)["pid"], signal.SIGKILL)


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


@pytest.mark.long
async def test_it_serves_until_down_and_leaves_nothing(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(yaml.safe_dump(PRODUCTION))
    done = await asyncio.to_thread(up, kubeconfig, "--tls")
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith(f"down --kubeconfig {kubeconfig}\n")
        for name in ("config.up", "config.up.log"):
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600, name
        (server,) = (
            each["cluster"]["server"]
            for each in yaml.safe_load(kubeconfig.read_text())["clusters"]
            if each["name"] == "stellwerk"
        )
        assert server.startswith("https://127.0.0.1:"), "with --tls"
        status, printed, said = await command(
            *("what-if", "--drain", "node-1", "--kubeconfig", str(kubeconfig)),
            *("--context", "stellwerk"),
        )
        assert (status, printed.splitlines()[0]) == (0, "If node-1 were drained:"), said
        again = await asyncio.to_thread(up, kubeconfig)
        pid = state_of(kubeconfig)["pid"]
        assert again.returncode == 2
        assert f"a cluster of {kubeconfig} is up (process {pid}): `stellwerk down`" in again.stderr
    finally:
        ended = await command("down", "--kubeconfig", str(kubeconfig))
    assert ended == (0, f"The cluster of {kubeconfig} has ended.\n", "")
    assert names(tmp_path) == {"config"}
    assert yaml.safe_load(kubeconfig.read_text()) == PRODUCTION


@pytest.mark.long
async def test_after_a_crash_both_commands_clean_up(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    try:
        assert (await asyncio.to_thread(up, kubeconfig)).returncode == 0
        first = state_of(kubeconfig)["pid"]
        crash(kubeconfig)
        assert (await asyncio.to_thread(up, kubeconfig)).returncode == 0, "it takes the place"
        assert state_of(kubeconfig)["pid"] != first
        await fetch(f"{server_of(kubeconfig)}/api/v1/nodes/node-1")
        crash(kubeconfig)
    finally:
        status, printed, _ = await command("down", "--kubeconfig", str(kubeconfig))
    assert status == 0
    assert "had ended by itself" in printed
    assert names(tmp_path) == {"config.up.log"}, "what to read stays"


def test_an_error_before_it_serves_is_printed_and_is_the_status(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "config"
    assert start(kubeconfig, ["version", "--server"]) == 2
    assert "unrecognized arguments: --server" in capfd.readouterr().err
    assert start(kubeconfig, ["version", "--client"]) == 1, "it ended, and served nothing"
    assert names(tmp_path) == set()


async def test_down_ends_no_process_that_does_not_hold_the_lock(tmp_path: Path) -> None:
    kubeconfig, state = tmp_path / "config", tmp_path / "config.up"
    asked = (sys.executable, "-c", "input()")
    other = await asyncio.create_subprocess_exec(*asked, stdin=subprocess.PIPE)
    try:
        state.touch(mode=0o600)
        state.write_text(json.dumps({"pid": other.pid}))
        status, printed, _ = await command("down", "--kubeconfig", str(kubeconfig))
        assert (status, "had ended by itself" in printed) == (0, True)
        assert other.returncode is None
        assert names(tmp_path) == set()
    finally:
        await other.communicate(b"\n")
    assert other.returncode == 0, "it got no signal"


@pytest.mark.parametrize("kind", ["open to others", "a link"])
async def test_files_that_are_not_private_are_refused(tmp_path: Path, kind: str) -> None:
    kubeconfig, state = tmp_path / "config", tmp_path / "config.up"
    if kind == "a link":
        state.symlink_to(tmp_path / "elsewhere")
    else:
        state.touch(mode=0o644)
    for words in (("down",), ("up", "--detach")):
        status, printed, said = await command(*words, "--kubeconfig", str(kubeconfig))
        assert (status, printed) == (2, "")
        assert said.startswith(f"stellwerk: cannot use {state}: ")
    assert names(tmp_path) == {"config.up"}


async def test_down_knows_the_exported_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "config.up").touch(mode=0o600)
    status, printed, _ = await command("down")
    assert (status, str(tmp_path / "config.up.log") in printed) == (0, True)
    status, _, said = await command("down")
    assert (status, "Ctrl-C" in said) == (1, True)


@pytest.fixture(autouse=True)
def _no_cluster_is_left(tmp_path: Path) -> Any:
    yield
    with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
        os.kill(state_of(tmp_path / "config")["pid"], signal.SIGTERM)
