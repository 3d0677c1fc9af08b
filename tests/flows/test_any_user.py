"""The operator and every command as a user who is but a number: no name, no home, no locale.

Containers run so. `tests/image` shows the same in the image, with a root that is read-only.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stellwerk_cli.cli import build_parser
from stellwerk_kube.json_values import JsonObject
from tests.support.enforced_process import enforced_cluster
from tests.support.processes import fetch, running, until
from tests.support.repository import ROOT

MODULE = "tests.support.nameless_user"
OFFLINE = (
    ("version",),
    ("version", "--client"),
    ("help", "run"),
    ("completion", "bash"),
    ("convert", "{root}/tests/data/convert/doc-most-allocated.in.yaml"),
    ("plan", "profile", "best-fit", "--for", "{root}/docs/examples/bin-packed-pod.yaml"),
    ("simulate", "--replay", "{root}/tests/data/recordings/extenders.journal"),
    ("run",),
    ("run", "--kubeconfig", "~/.kube/config"),
    ("run", "--kubeconfig", "~nobody-of-this-name/config"),
    ("record", "{directory}/day.journal", "--for", "1s"),
    ("decide", "--pod", "team/web-0", "--kubeconfig", "~/.kube/config"),
    ("promote", "packing-next", "--yes"),
    ("profile", "history", "packing"),
    ("bench", "--context", "it", "--yes"),
    ("dump", "--url", "http://127.0.0.1:1"),
    ("doctor",),
    ("leave",),
    ("down",),
    ("cluster", "fail", "node-1"),
    *((name, "--url", "http://127.0.0.1:1") for name in ("queue", "decisions", "nodes", "devices")),
    ("explain", "pod", "default/web", "--url", "http://127.0.0.1:1"),
    ("what-if", "--drain", "node-1", "--url", "http://127.0.0.1:1"),
    ("shadow", "diff", "packing-next", "--url", "http://127.0.0.1:1"),
    ("observe", "report", "--url", "http://127.0.0.1:1"),
    ("page", "--url", "http://127.0.0.1:1"),
)
POD: JsonObject = {
    "metadata": {"name": "web"},
    "spec": {"schedulerName": "stellwerk", "containers": [{"name": "main", "image": "pause"}]},
}
SERVING = {"up", "demo"}
"""These serve a cluster until they are ended: `test_up_and_the_demo` starts them."""


async def test_the_operator_starts(tmp_path: Path) -> None:
    async with enforced_cluster(tmp_path, "--nodes", "1") as cluster:
        access = ("--kubeconfig", str(cluster.kubeconfig), "--bind-address", "127.0.0.1:0")
        log, pods = tmp_path / "run.log", f"{cluster.server}/api/v1/namespaces/default/pods"
        async with running(log, "run", *access, module=MODULE, is_forked=False) as operator:
            await fetch(pods, POD)

            async def is_bound() -> bool:
                return "nodeName" in json.loads(await fetch(f"{pods}/web"))["spec"]

            await until(is_bound, operator, cluster.process)
            assert await operator.stop() == 0
    assert "Traceback" not in log.read_text()
    assert "never awaited" not in log.read_text()


def test_every_command_ends_in_words(tmp_path: Path) -> None:
    names = {"root": str(ROOT), "directory": str(tmp_path)}
    lines = [[word.format_map(names) for word in words] for words in OFFLINE]
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "--each", json.dumps(lines)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words, (status, _, said) in zip(lines, json.loads(done.stdout), strict=True):
        assert status in {0, 1, 2, 3}, (words, said)
        assert "Traceback" not in said, words
        assert status == 0 or said.startswith("stellwerk"), (words, said)
    called = {words[0] for words in OFFLINE}
    (commands,) = [each for each in build_parser()._actions if each.choices]  # noqa: SLF001
    assert called | SERVING == {*map(str, commands.choices or ())}


@pytest.mark.long
@pytest.mark.parametrize("command", sorted(SERVING))
async def test_up_and_the_demo(tmp_path: Path, command: str) -> None:
    log = tmp_path / "log"
    words = (command, "--kubeconfig", str(tmp_path / "config")) if command == "up" else (command,)
    async with running(log, *words, module=MODULE, is_forked=False) as process:

        async def is_done() -> bool:
            return "Stop: Ctrl-C" in log.read_text() or process.process.returncode is not None

        await until(is_done)
    assert "Traceback" not in log.read_text()
    assert process.process.returncode in {0, 130, -15}, log.read_text()
