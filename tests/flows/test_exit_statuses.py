"""Every command ends with the status that docs/exit-statuses.md gives to the case.

The commands are those that the parsers know, so that a new one cannot be forgotten.
"""

import asyncio
import http.server
import io
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
import yaml
from typing_extensions import override

from stellwerk.client.kubernetes import KubernetesClient, pod_path
from stellwerk_cli.cli import main
from stellwerk_cli.commands.cluster_client import with_client
from stellwerk_cluster.identity.assembly import ADMIN
from stellwerk_cluster.kubeconfig import CONTEXT
from tests.support.builders import make_node, make_pod
from tests.support.command_line import commands
from tests.support.in_process import make_profile
from tests.support.processes import running
from tests.support.recorded_kinds import RECORDINGS
from tests.support.repository import ROOT

ANSWERED, NO, MISTAKEN, AWAY = 0, 1, 2, 3
OF_CLUSTER = "--kubeconfig {kubeconfig}"
OF_PORT = "--url {url}"


@dataclass(frozen=True)
class Never:
    """Why a command has no line of a kind."""

    reason: str


SERVES = Never("it serves until a signal ends it; tests/flows/test_ending.py and its like")
ASKS_NOBODY = Never("it reads files alone")
NO_YES_OR_NO = Never("its answer is not yes or no")
ABSENT_NOTHING = Never("it names nothing that could be absent")


@dataclass(frozen=True)
class Lines:
    """Command lines without the command, by the status that they end with."""

    answered: str | Never
    """Ends with 0."""
    no: str | Never
    """Ends with 0, and with 1 where --exit-code is added."""
    absent: str | Never
    """Names what the cluster does not have, or is refused: 1."""
    mistaken: str
    """Has a mistake in its arguments or files: 2."""
    asks: tuple[str, ...] | Never
    """Asks a server: 3 where none answers, 1 where it answers and refuses."""


LIST = Lines(
    OF_CLUSTER, NO_YES_OR_NO, ABSENT_NOTHING, f"{OF_CLUSTER} -o xml", (OF_PORT, OF_CLUSTER)
)
LIST_OF_PODS = Lines(
    f"-A {OF_CLUSTER}",
    NO_YES_OR_NO,
    ABSENT_NOTHING,
    f"-l =x {OF_CLUSTER}",
    (f"-A {OF_PORT}", f"-A {OF_CLUSTER}"),
)
INCIDENT = Lines("node-1", NO_YES_OR_NO, "node-9", "", ("node-1",))
TABLE = {
    "run": Lines(
        SERVES,
        NO_YES_OR_NO,
        ABSENT_NOTHING,
        f"--leader-elect --leader-elect-lease-duration 1s {OF_CLUSTER}",
        Never("it waits for its server; tests/flows/test_ending.py"),
    ),
    "cluster": Lines(SERVES, NO_YES_OR_NO, ABSENT_NOTHING, "--nodes none.yaml", ASKS_NOBODY),
    "cluster fail": INCIDENT,
    "cluster cut-off": INCIDENT,
    "cluster restore": INCIDENT,
    "cluster pod": Lines("fits", NO_YES_OR_NO, "none", "fits --exit-code 256", ("fits",)),
    "demo": Lines(
        Never("tests/flows/test_operator_process.py and the documents run it"),
        NO_YES_OR_NO,
        ABSENT_NOTHING,
        "now",
        ASKS_NOBODY,
    ),
    "down": Lines(
        Never("tests/flows/test_detached_cluster.py"),
        NO_YES_OR_NO,
        "--kubeconfig none.kubeconfig",
        "now",
        ASKS_NOBODY,
    ),
    "up": Lines(SERVES, NO_YES_OR_NO, ABSENT_NOTHING, "--nodes none.yaml", ASKS_NOBODY),
    "explain": Lines(
        f"pod fits {OF_CLUSTER}",
        f"pod waits {OF_CLUSTER}",
        f"pod none {OF_CLUSTER}",
        f"widget x {OF_CLUSTER}",
        (
            f"pod fits -n default {OF_PORT}",
            f"pod fits {OF_CLUSTER}",
            f"deployment web {OF_CLUSTER}",
        ),
    ),
    "queue": LIST_OF_PODS,
    "decisions": Lines(
        f"-A --node none {OF_CLUSTER}",
        NO_YES_OR_NO,
        ABSENT_NOTHING,
        f"-A -o xml {OF_CLUSTER}",
        LIST_OF_PODS.asks,
    ),
    "nodes": Lines(LIST.answered, NO_YES_OR_NO, f"--sort-by none {OF_CLUSTER}", "-l =x", LIST.asks),
    "devices": LIST,
    "what-if": Lines(
        f"--drain node-1 {OF_CLUSTER}",
        f"--pod waits.yaml {OF_CLUSTER}",
        f"--pod none {OF_CLUSTER}",
        f"--pod none.yaml {OF_CLUSTER}",
        (f"--drain node-1 {OF_PORT}", f"--drain node-1 {OF_CLUSTER}", f"--pod none {OF_CLUSTER}"),
    ),
    "dump": Lines(
        OF_CLUSTER,
        Never("nothing differs here; tests/flows/test_sandbox.py"),
        ABSENT_NOTHING,
        "-o xml",
        LIST.asks,
    ),
    "doctor": Lines(
        OF_CLUSTER,
        Never("nothing is broken here; tests/flows/test_doctor.py"),
        ABSENT_NOTHING,
        f"--bundle none/bundle.tar.gz {OF_CLUSTER}",
        (OF_CLUSTER,),
    ),
    "page": Lines(SERVES, NO_YES_OR_NO, ABSENT_NOTHING, "--url 127.0.0.1:1", LIST.asks),
    "shadow": Lines(
        Never("a shadow has to have decided; tests/flows/test_shadow_by_kubectl.py"),
        NO_YES_OR_NO,
        f"diff none {OF_CLUSTER}",
        f"show none {OF_CLUSTER}",
        (f"diff none {OF_PORT}", f"diff none {OF_CLUSTER}"),
    ),
    "observe": Lines(
        f"report {OF_CLUSTER}",
        Never("a binding has to differ; tests/unit/stellwerk_cli/commands/test_observe.py"),
        f"report none {OF_CLUSTER}",
        f"reports {OF_CLUSTER}",
        (f"report {OF_PORT}", f"report {OF_CLUSTER}"),
    ),
    "promote": Lines(
        Never("tests/flows/test_shadow_by_kubectl.py"),
        NO_YES_OR_NO,
        f"none --yes {OF_CLUSTER}",
        "",
        (f"none --yes {OF_CLUSTER}",),
    ),
    "profile history": Lines(
        f"default {OF_CLUSTER}",
        NO_YES_OR_NO,
        f"none {OF_CLUSTER}",
        "",
        (f"default {OF_CLUSTER}",),
    ),
    "profile rollback": Lines(
        f"default --to 1 {OF_CLUSTER}",
        NO_YES_OR_NO,
        f"default --to 9 --yes {OF_CLUSTER}",
        f"default --to first {OF_CLUSTER}",
        (f"default --yes {OF_CLUSTER}",),
    ),
    "decide": Lines(
        OF_CLUSTER, NO_YES_OR_NO, f"--pod none {OF_CLUSTER}", "none.yaml", (OF_CLUSTER,)
    ),
    "convert": Lines("scheduler.yaml", NO_YES_OR_NO, ABSENT_NOTHING, "waits.yaml", ASKS_NOBODY),
    "leave": Lines(
        f"--yes {OF_CLUSTER}",
        NO_YES_OR_NO,
        Never("what is not there has been left"),
        f"--deployment a/b/c {OF_CLUSTER}",
        (f"--yes {OF_CLUSTER}",),
    ),
    "record": Lines(
        f"new.journal --for 100ms {OF_CLUSTER}",
        NO_YES_OR_NO,
        ABSENT_NOTHING,
        f"waits.yaml {OF_CLUSTER}",
        (f"other.journal --for 1s {OF_CLUSTER}",),
    ),
    "simulate": Lines(
        OF_CLUSTER,
        NO_YES_OR_NO,
        "--replay day.journal --until default/none",
        "--replay waits.yaml",
        (OF_CLUSTER,),
    ),
    "plan fit": Lines(
        f"--for pending --shapes node.yaml {OF_CLUSTER}",
        "--for waits.yaml --shapes node.yaml",
        Never("its names are files"),
        "--for none.yaml --shapes node.yaml",
        (f"--for pending --shapes node.yaml {OF_CLUSTER}",),
    ),
    "plan defrag": Lines(
        f"--free nodes=1 {OF_CLUSTER}",
        f"--free nodes=9 {OF_CLUSTER}",
        Never("its names are files and resources"),
        f"--free gpus=1 --gpu-resource example.com/none {OF_CLUSTER}",
        (f"--free nodes=1 {OF_CLUSTER}",),
    ),
    "plan profile": Lines(
        f"best-fit {OF_CLUSTER}", NO_YES_OR_NO, ABSENT_NOTHING, "none", (f"best-fit {OF_CLUSTER}",)
    ),
    "bench": Lines(
        f"--clean {OF_CLUSTER}",
        NO_YES_OR_NO,
        ABSENT_NOTHING,
        f"--nodes 1 --pods 11 {OF_CLUSTER}",
        (f"--clean --yes {OF_CLUSTER}",),
    ),
    "version": Lines(OF_CLUSTER, NO_YES_OR_NO, ABSENT_NOTHING, "--server", (OF_CLUSTER,)),
    "completion": Lines("bash", NO_YES_OR_NO, ABSENT_NOTHING, "tcsh", ASKS_NOBODY),
    "help": Lines("plan defrag", NO_YES_OR_NO, ABSENT_NOTHING, "none", ASKS_NOBODY),
}
"""What each command does in each case; `test_every_command_is_in_the_table` compares the names."""
MISTAKEN_BESIDE_A_SERVER = {"plan defrag", "record"}
"""Their mistake shows once the server has answered: which resources there are, and a file that is
opened for what it says."""
_INCIDENTS = "cluster "


def test_every_command_is_in_the_table() -> None:
    assert set(TABLE) == {words for words, _ in commands()}


def test_every_command_that_may_say_no_has_a_line_of_it() -> None:
    knows = {
        words
        for words, parser in commands()
        if "--exit-code" in parser._option_string_actions  # noqa: SLF001 argparse has no other way
    }
    # That option of `cluster pod` is the exit code of the containers.
    assert knows - {"cluster pod"} == {
        words for words, lines in TABLE.items() if lines.no is not NO_YES_OR_NO
    }


def test_the_documents_have_the_table_once() -> None:
    page = (ROOT / "docs" / "exit-statuses.md").read_text(encoding="utf-8")
    rows = [line[:5] for line in page.splitlines() if re.match(r"\| \d \| ", line)]
    assert rows == [f"| {status} |" for status in (ANSWERED, NO, MISTAKEN, AWAY)]


def written(directory: Path, kubeconfig: str, url: str) -> dict[str, str]:
    """Files for the command lines, and what stands for the server in them."""
    waits = make_pod("waits", cpu="900")
    files: dict[str, object] = {
        "waits.yaml": {"apiVersion": "v1", "kind": "Pod", **waits},
        "node.yaml": {"apiVersion": "v1", "kind": "Node", **make_node("shape")},
        "scheduler.yaml": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        },
        "profile.yaml": make_profile("other", "other"),
    }
    for name, content in files.items():
        (directory / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    (directory / "day.journal").write_bytes((RECORDINGS / "embedded-cluster.journal").read_bytes())
    return {"kubeconfig": kubeconfig, "url": url}


def ended(words: str, line: str, server: dict[str, str]) -> tuple[int, str]:
    """The status of a command line, and what it wrote on standard error."""
    command = words.split()
    if words.startswith(_INCIDENTS):
        command[1:1] = ["--kubeconfig", server["kubeconfig"]]
    status: int | str | None
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
        try:
            status = main([*command, *shlex.split(line.format(**server))])
        except SystemExit as left:
            status = left.code
    said = errors.getvalue()
    assert "Traceback" not in said
    assert isinstance(status, int), said
    return status, said


class Refusing(http.server.BaseHTTPRequestHandler):
    """A server that refuses whatever it is asked."""

    def refuse(self) -> None:
        """Answer 403."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = orjson.dumps({"kind": "Status", "message": "you may not", "code": 403})
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = refuse  # noqa: N815 names of http.server

    @override
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def refusing() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def of(kind: str) -> list[tuple[str, str]]:
    """The command lines of a kind, each with its command."""
    found = []
    for words, lines in TABLE.items():
        line = getattr(lines, kind)
        if not isinstance(line, Never):
            found += [(words, each) for each in (line if isinstance(line, tuple) else (line,))]
    return found


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("STELLWERK_URL", raising=False)
    return tmp_path


def kubeconfig_of(server: str, directory: Path) -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": ADMIN.name}}],
        "clusters": [{"name": CONTEXT, "cluster": {"server": server}}],
        "users": [{"name": ADMIN.name, "user": {"token": "t"}}],
    }
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(file)


def test_a_server_that_is_away_is_status_3_in_one_line(directory: Path) -> None:
    nowhere = "http://127.0.0.1:1"  # nothing listens on the port of tcpmux
    server = written(directory, kubeconfig_of(nowhere, directory), nowhere)
    for words, line in of("asks"):
        status, said = ended(words, line, server)
        assert (status, said.count("\n")) == (AWAY, 1), f"{words} {line}: {status} {said}"


def test_a_server_that_refuses_is_status_1_in_one_line(directory: Path) -> None:
    with refusing() as url:
        server = written(directory, kubeconfig_of(url, directory), url)
        for words, line in of("asks"):
            status, said = ended(words, line, server)
            assert (status, said.count("\n")) == (NO, 1), f"{words} {line}: {status} {said}"


def test_a_mistake_is_status_2_in_one_line(directory: Path) -> None:
    nowhere = "http://127.0.0.1:1"
    server = written(directory, kubeconfig_of(nowhere, directory), nowhere)
    for words, line in of("mistaken"):
        if words not in MISTAKEN_BESIDE_A_SERVER:
            status, said = ended(words, line, server)
            assert (status, said.count("\n")) == (MISTAKEN, 1), f"{words} {line}: {status} {said}"


async def test_answers_and_what_is_not_there_have_their_status(directory: Path) -> None:
    kubeconfig = directory / "live"
    log = directory / "log"
    async with running(log, "up", "--nodes", "2", "--kubeconfig", str(kubeconfig)) as process:
        async with asyncio.timeout(60):
            while "Stop: Ctrl-C" not in log.read_text(encoding="utf-8"):
                process.check_alive()
                await asyncio.sleep(0.1)
        await asyncio.to_thread(check_live, directory, str(kubeconfig))


def kept_revisions(history: list[str]) -> bool:
    """Whether the operator has written a revision of the profile; it does so after it is ready."""
    done = subprocess.run(history, capture_output=True, text=True, check=False)
    return '"revision"' in done.stdout


def check_live(directory: Path, kubeconfig: str) -> None:
    server = written(directory, kubeconfig, "")
    make_pods(kubeconfig)
    history = [sys.executable, "-m", "stellwerk_cli", "profile", "history", "default"]
    deadline = time.monotonic() + 60
    while not kept_revisions([*history, "--kubeconfig", kubeconfig, "--output", "json"]):
        assert time.monotonic() < deadline, "no revision of the profile is kept"
        time.sleep(0.2)
    mistaken = [each for each in of("mistaken") if each[0] in MISTAKEN_BESIDE_A_SERVER]
    expected = [(ANSWERED, of("answered")), (NO, of("absent")), (MISTAKEN, mistaken)]
    expected += [(ANSWERED, of("no")), (NO, [(w, f"{line} --exit-code") for w, line in of("no")])]
    wrong = []
    for wanted, lines in expected:
        for words, line in lines:
            status, said = ended(words, line, server)
            if status != wanted:
                wrong.append(f"{words} {line}: {status} in place of {wanted}: {said}")
    assert not wrong, "\n".join(wrong)


def make_pods(kubeconfig: str) -> None:
    """Make a pod that fits and one that does not, and wait until both have been tried."""

    async def make(client: KubernetesClient) -> None:
        for pod in (make_pod("fits", cpu="100m"), make_pod("waits", cpu="900")):
            pod["metadata"].pop("uid", None)
            await client.create("/api/v1/namespaces/default/pods", pod)
        async with asyncio.timeout(30):
            for name in ("fits", "waits"):
                path = pod_path("default", name)
                while "conditions" not in (await client.get(path))["status"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    asyncio.run(with_client(kubeconfig, None, make))
