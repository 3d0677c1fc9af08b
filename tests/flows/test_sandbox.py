"""`stellwerk demo` and `stellwerk up` as a new user meets them."""

import asyncio
import io
import json
import os
import re
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from stellwerk.profiles.spec.profile import API_VERSION, PLURAL
from stellwerk_cli.demo import demo
from stellwerk_cli.demo.demo import Example, run_demo
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.processes import command, fetch, running, server_of, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "called", ["stellwerk", "/home/somebody/clusters/stellwerk/.venv/bin/stellwerk"]
)
async def test_the_demo_computes_its_reasons_and_says_what_would_help(
    called: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "own_command", lambda: called)
    output = io.StringIO()
    assert await run_demo(keep=False, output=output) == 0
    text = output.getvalue()
    assert re.search(r"^Kubernetes [0-9.]+, 6 nodes, at http://127.0.0.1:[0-9]+\n", text)
    nginx = " ".join(text[text.index("\nnginx") : text.index("\nwith-node")].split())
    assert nginx == "nginx kube-04 the only node that fits: 4 lack disktype=ssd, 1 is tainted"
    assert re.search(r"^redis-cache \(3\) ", text, re.MULTILINE), "replicas are one row"
    assert "redis-cache-" not in text
    impossible = text[text.index("impossible fits nowhere") :]
    assert re.search(r"  - request \d+ instead of 64 CPU", impossible)
    assert f"  {called} up --detach --open" in text[text.index("Next:\n") :]
    # A line that holds nothing but a command is as long as the command's path makes it.
    assert all(len(line) <= 80 or line.startswith(f"  {called} ") for line in text.splitlines()[1:])
    assert "  this one again, kept for kubectl" in text or "  # this one again, " in text


async def test_the_demo_fails_where_a_manifest_forbids_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod that names its node goes past every filter, as a wrong decision would."""
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    nodes = [make_node("free", cpu="4"), make_node("tainted", cpu="4", taints=[taint])]
    right = make_pod("right", cpu="1", scheduler_name="stellwerk")
    wrong = make_pod("wrong", cpu="1", node_name="tainted")
    for pod in (right, wrong):
        del pod["metadata"]["uid"]
    examples = [
        Example("As it should be", schedulable=True, objects=(right,)),
        Example("Past the scheduler", schedulable=True, objects=(wrong,)),
    ]
    monkeypatch.setattr(demo, "load_nodes", lambda: nodes)
    monkeypatch.setattr(demo, "load_examples", lambda: examples)
    output = io.StringIO()
    assert await run_demo(keep=False, output=output) == 1
    text = output.getvalue()
    assert "2 of 2 pods placed" in text
    complaint = "wrong: tainted has the taint dedicated, which is not tolerated"
    assert [line for line in text.splitlines() if "not as expected" in line] == [
        f"not as expected: {complaint}"
    ]


async def test_one_folder_has_one_cluster_and_what_it_left_is_taken_over(tmp_path: Path) -> None:
    kubeconfig, mine = tmp_path / "kubeconfig", tmp_path / "mine"
    mine.write_text("current-context: production\n")
    arguments = ("cluster", "--nodes", "1", "--kubeconfig", str(kubeconfig))

    async def is_written() -> bool:
        return kubeconfig.exists()

    async with running(tmp_path / "log", *arguments) as first:
        await until(is_written, first)
        written = kubeconfig.read_bytes()
        for command in ("up", "cluster"):
            status, said = await refusal(command, "--nodes", "1", "--kubeconfig", str(kubeconfig))
            assert (status, said.count("\n")) == (2, 1), said
            url = server_of(kubeconfig)
            assert f"kubeconfig leads to a cluster that is running at {url}: " in said
            status, said = await refusal(command, "--nodes", "1", "--kubeconfig", str(mine))
            assert (status, said.count("\n")) == (2, 1), said
            assert "mine exists and is not a kubeconfig: " in said
        assert kubeconfig.read_bytes() == written
        first.process.kill()
        await first.process.wait()
    assert kubeconfig.read_bytes() == written
    async with running(tmp_path / "log", *arguments) as second:

        async def is_replaced() -> bool:
            return kubeconfig.read_bytes() != written

        await until(is_replaced, second)
    assert not kubeconfig.exists()
    assert mine.read_text() == "current-context: production\n"


PRODUCTION = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "production", "cluster": {"server": "https://192.0.2.1"}}],
    "users": [{"name": "me", "user": {"token": "mine"}}],
    "contexts": [{"name": "production", "context": {"cluster": "production", "user": "me"}}],
    "current-context": "production",
}


def others(kubeconfig: Path) -> JsonObject:
    """A kubeconfig without the entries of the embedded cluster."""
    found: JsonObject = yaml.safe_load(kubeconfig.read_bytes())
    for section in ("clusters", "users", "contexts"):
        found[section] = [
            each for each in found[section] if not each["name"].startswith("stellwerk")
        ]
    return found


async def test_a_user_s_kubeconfig_keeps_all_others_also_when_killed(tmp_path: Path) -> None:
    kubeconfig, log = tmp_path / "config", tmp_path / "log"
    kubeconfig.write_text(yaml.safe_dump(PRODUCTION))
    kubeconfig.chmod(0o640)
    arguments = ("--nodes", "1", "--kubeconfig", str(kubeconfig))

    async def is_up() -> bool:
        return "--context stellwerk" in log.read_text()

    async with running(log, "cluster", *arguments) as killed:
        await until(is_up, killed)
        assert others(kubeconfig) == PRODUCTION
        arguments_of_fail = ("cluster", "--kubeconfig", str(kubeconfig), "fail", "node-1")
        done = await command(*arguments_of_fail)
        assert done == (0, "node/node-1: failed\n", ""), "not of the first cluster in it"
        killed.process.kill()
        await killed.process.wait()
    assert others(kubeconfig) == PRODUCTION
    assert "stellwerk" in kubeconfig.read_text(), "it had no time to remove its own"
    log.unlink()
    async with running(log, "up", *arguments) as up:
        await until(is_up, up)
        assert others(kubeconfig) == PRODUCTION
        drain = tries(log)[-1]
        environment = {"KUBECONFIG": str(kubeconfig)}
        said = await output_of_process(*after_program(drain), environment=environment)
        assert said.startswith("If node-1 were drained"), drain
        assert await up.stop() == 0
    assert yaml.safe_load(kubeconfig.read_bytes()) == PRODUCTION
    assert kubeconfig.stat().st_mode & 0o777 == 0o640
    assert {each.name for each in await asyncio.to_thread(lambda: [*tmp_path.iterdir()])} == {
        "config",
        "log",
    }


async def refusal(*arguments: str) -> tuple[int | None, str]:
    """Exit status and stderr of a command that does not begin."""
    status, printed, said = await command(*arguments)
    assert printed == ""
    return status, said


async def test_what_up_prints_works_as_printed(tmp_path: Path) -> None:
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    arguments = ("--nodes", "2", "--kubeconfig", str(kubeconfig))
    async with running(log, "up", *arguments, is_forked=False) as up:

        async def is_up() -> bool:
            return "Stop: Ctrl-C" in log.read_text()

        await until(is_up, up)
        pod = make_pod("hello", cpu="1")
        await fetch(f"{server_of(kubeconfig)}/api/v1/namespaces/default/pods", pod)
        url = re.findall(r"^Scheduler: +(\S+)$", log.read_text(), re.MULTILINE)[0]

        async def is_bound() -> bool:
            return not json.loads(await fetch(f"{url}/queue"))["items"]

        await until(is_bound, up)
        *_, export, create, explain, drain = tries(log)
        assert (export, create.split()[:3]) == (
            f"export KUBECONFIG={kubeconfig}",
            ["kubectl", "run", "hello"],
        )
        environment = {"KUBECONFIG": str(kubeconfig)}
        printed = await output_of_process(*after_program(explain), environment=environment)
        assert printed.startswith("default/hello is bound on node-")
        printed = await output_of_process(*after_program(drain), environment=environment)
        assert printed.startswith("If node-1 were drained")
        printed = await output_of("decisions", "--kubeconfig", str(kubeconfig))
        head, row = printed.splitlines()
        assert head.split() == ["POD", "NODE", "AGE", "FEASIBLE", "TIED", "ATTEMPTS"]
        assert row.split()[0] == "default/hello"
        printed = await output_of("queue", "-A", "--kubeconfig", str(kubeconfig))
        assert printed == "No pod waits.\n"
        printed = await output_of("nodes", "--kubeconfig", str(kubeconfig), "-o", "json")
        assert [each["name"] for each in json.loads(printed)["items"]] == ["node-1", "node-2"]
        printed = await output_of(
            "profile", "history", "default-scheduler", "--kubeconfig", str(kubeconfig)
        )
        assert printed.startswith("REVISION"), "where the commands look without -n"
        printed = await output_of("explain", "pod", "hello", "--url", url, "-o", "json")
        assert json.loads(printed)["pod"] == "default/hello"
        printed = await output_of("decide", "--kubeconfig", str(kubeconfig), "--pod", "hello")
        assert json.loads(printed)["id"] == "default/hello"
        assert json.loads(printed)["compatibility"] == "1.37.0", "as the operator decides"
        listed = await fetch(f"{server_of(kubeconfig)}/apis/{API_VERSION}/{PLURAL}")
        assert all(each["spec"]["gangScheduling"] for each in json.loads(listed)["items"])
        assert "default/hello" in await page_at(printed_address(log))
        await page_of_its_own(tmp_path / "page.log", url)
    assert not kubeconfig.exists()


async def page_of_its_own(log: Path, url: str) -> None:
    """`stellwerk page` shows the same, and ends when it is asked to."""
    async with running(log, "page", "--url", url, is_forked=False) as page:

        async def is_served() -> bool:
            return bool(printed_address(log))

        await until(is_served, page)
        assert "default/hello" in await page_at(printed_address(log))
        assert await page.stop() == 0


def printed_address(log: Path) -> str:
    """Where the page is; empty: not there yet."""
    found = re.search(r"^Page: +(\S+)\n", log.read_text(), re.MULTILINE)
    return found[1] if found else ""


async def page_at(address: str) -> str:
    """The page as a browser gets it, which keeps the cookie and follows."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    def read() -> str:
        with opener.open(address, timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    return await asyncio.to_thread(read)


async def output_of(*arguments: str) -> str:
    """What a command prints."""
    status, printed, said = await command(*arguments)
    assert status == 0, said
    return printed


def tries(log: Path) -> list[str]:
    """The commands that are printed to be tried."""
    block = log.read_text().partition("Try, in another terminal:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in block.splitlines()]


def after_program(line: str) -> list[str]:
    """The arguments of a printed command, which begins with the way to call this program."""
    name = re.compile(r"stellwerk(?:_cli)? ")
    return name.split(line, maxsplit=1)[1].split()


async def output_of_process(*arguments: str, environment: dict[str, str]) -> str:
    """The same of a process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stellwerk_cli",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


async def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    cases = tmp_path / "cases"
    case = {"id": "a", "nodes": [], "pod": make_pod("web")}
    cases.write_text(f"{json.dumps(case)}\n" * 5000)
    command = f"{sys.executable} -m stellwerk_cli decide {cases} | head -1"
    process = await asyncio.create_subprocess_shell(
        f'bash -c "set -o pipefail; {command}"',
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaints = await process.communicate()
    assert (process.returncode, complaints) == (0, b"")
