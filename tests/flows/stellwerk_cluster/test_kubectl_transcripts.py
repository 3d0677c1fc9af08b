"""kubectl says on the embedded cluster what it said on a real one: the recorded sessions, replayed.

`DIFFERENT` names the commands that end differently, each with the reason; it must only shrink.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.users import User
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_cluster.identity.token_file import StaticToken
from tests.support.kubectls import Kubectl, program_of
from tests.support.recordings import TRANSCRIPTS, WIRE_RELEASE, transcript_modules
from tests.support.rights import with_token
from tests.support.served_cluster import send, served

RECORDED_WITH = 33
WATCHED_SECONDS = (1, 5, 25)
"""How long to let a command run that ends by a signal; the next one where it has said less."""

SLOW = ("kubectl-drain",)
_WITHOUT_WAITING = {"--wait=false", "--grace-period=0"}

_OWN_TEXT = "descriptions are our own"
_USERS = "its user is one of several: see OF_USERS"

DIFFERENT: dict[str, dict[int, str]] = {
    "kubectl-apply": {
        4: "the API server appends a dump of its own data structures to the message",
    },
    "kubectl-change": {},
    "kubectl-delete": {},
    "kubectl-describe": {},
    "kubectl-discovery": {
        1: "the version says that this is Stellwerk's",
        2: "the version says that this is Stellwerk's",
        3: "fewer kinds are served",
        4: "fewer groups are served",
        6: _OWN_TEXT,
        7: _OWN_TEXT,
        8: _OWN_TEXT,
        11: _USERS,
        12: _USERS,
        13: "the probes check what there is to check",
        14: "the version says that this is Stellwerk's",
        16: "the kubeconfig is our own",
        17: _USERS,
        18: _USERS,
        19: _USERS,
        20: _USERS,
        21: _USERS,
        22: _USERS,
        23: _USERS,
    },
    "kubectl-drain": {},
    "kubectl-get": {
        23: "the lease of the API server has a name of our own",
        25: "what is shown depends on the ports that are open on this machine",
        26: "the recorder created a pod while the watch was open",
    },
}
"""kubectl-poor-server is left out: there a proxy took away what the embedded cluster has."""

if WIRE_RELEASE == "1.38":
    DIFFERENT["kubectl-discovery"][15] = "groups of pods are served by default"

OF_USERS = (11, 12, *range(17, 24))
"""Commands of kubectl-discovery about users and rights: they need TLS, for kubectl shows no
credentials without it.
"""
USERS = {
    "as a restricted user": StaticToken("alice", User("alice", "alice", ("",))),
    "with a bad token": StaticToken("", User("")),
    "": StaticToken("admin", User("admin", "admin", ("system:masters",))),
}
"""By the beginning of a command's note."""


def setup(url: str, line: dict[str, Any]) -> None:
    request = line["request"]
    path = request["path"] + (f"?{request['query']}" if request.get("query") else "")
    body = request.get("body")
    content = None if body is None else json.dumps(body).encode()
    status, answer = send(url, request["method"], path, content, request.get("headers") or {})
    assert status < HTTPStatus.BAD_REQUEST, answer


def shown(text: str, normalise: ModuleType) -> list[str]:
    """The lines of an output without times, ages, addresses of servers, and widths of columns."""
    text = re.sub(r"http://127\.0\.0\.1:\d+", "<server>", text)
    text = re.sub(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+]0000", "<time>", text)
    text = re.sub(r"/\w+/(LIVE|MERGED)-\d+", "<path>", text)
    text = re.sub(r"^[WE]\d{4} [\d:.]+ +\d+ ", "<log> ", text, flags=re.MULTILINE)
    text = re.sub(r'"resourceVersion": "\d+"', '"resourceVersion": "<rv>"', text)
    lines = []
    for line in normalise.text(text).splitlines():
        words = [
            "<age>" if normalise.AGE.match(word) else word for word in re.split(r"\s{2,}|\t", line)
        ]
        lines.append(" ".join(" ".join(words).split()))
    return lines


def replayed(
    scenario: str, kubectl: Kubectl, url: str, normalise: ModuleType
) -> Iterator[tuple[int, str, object, object]]:
    for text in (TRANSCRIPTS / "kubectl" / f"{scenario}.jsonl").read_text().splitlines():
        line = json.loads(text)
        if line.get("setup"):
            setup(url, line)
        if "kubectl" not in line:
            continue
        listed = line["command"] in DIFFERENT.get(scenario, {})
        waits = not _WITHOUT_WAITING.intersection(line["kubectl"]["args"])
        with removing_terminating_pods(url) if waits else nullcontext():
            differences = list(compared(line, kubectl, normalise, listed=listed))
        yield from differences


def compared(
    line: dict[str, Any], kubectl: Kubectl, normalise: ModuleType, *, listed: bool
) -> Iterator[tuple[int, str, object, object]]:
    recorded = line["kubectl"]
    for name, content in (recorded.get("files") or {}).items():
        (kubectl.home / name).write_text(content)
    with_environment = Kubectl(
        kubectl.program,
        kubectl.home,
        kubectl.kubeconfig,
        kubectl.namespace,
        {"PATH": "/usr/bin:/bin", **(recorded.get("env") or {})},
    )
    expected = shown(recorded["stdout"], normalise)
    patience = WATCHED_SECONDS if "endedBySignalAfterSeconds" in recorded else (30,)
    for seconds in (min(3, patience[0]),) if listed else patience:
        done = with_environment.run(
            *recorded["args"], stdin=recorded.get("stdin") or "", seconds=seconds
        )
        if shown(done.stdout, normalise) == expected:
            break
    number, note = line["command"], " ".join(recorded["args"])
    if "endedBySignalAfterSeconds" not in recorded and done.code != recorded["exitCode"]:
        yield number, note, recorded["exitCode"], (done.code, done.stderr)
    for stream, found in (("stdout", done.stdout), ("stderr", done.stderr)):
        expected, said = shown(recorded[stream], normalise), shown(found, normalise)
        if expected != said:
            yield number, note, expected, said


@contextmanager
def removing_terminating_pods(url: str) -> Iterator[None]:
    """The recorder had no kubelet either: it removed terminating pods itself, a second later.

    Here only while a command waits for it, however long those between take.
    """
    stopped = threading.Event()

    def reap() -> None:
        while not stopped.wait(1):
            pods = json.loads(send(url, "GET", "/api/v1/pods")[1])["items"]
            for pod in pods:
                metadata = pod["metadata"]
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                if "deletionTimestamp" in metadata:
                    send(url, "DELETE", f"{path}?gracePeriodSeconds=0")

    thread = threading.Thread(target=reap)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(10)


@pytest.fixture(scope="module")
def normalise() -> Iterator[ModuleType]:
    with transcript_modules("normalise") as (loaded,):
        yield loaded


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(each, marks=pytest.mark.all_versions if each in SLOW else ())
        for each in sorted(DIFFERENT)
    ],
)
def test_every_command_ends_as_recorded(
    scenario: str, normalise: ModuleType, tmp_path: Path
) -> None:
    options = ClusterOptions(
        controllers=False, kubelet=None, heartbeats=False, release=WIRE_RELEASE
    )
    program = program_of(RECORDED_WITH)
    with served(EmbeddedCluster(0, options=options)) as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        kubectl = Kubectl(program, tmp_path, tmp_path / "kubeconfig")
        differences = [
            difference
            for difference in replayed(scenario, kubectl, cluster.url, normalise)
            if difference[0] not in DIFFERENT[scenario]
        ]
    assert differences == []


def test_commands_of_several_users_end_as_recorded(normalise: ModuleType, tmp_path: Path) -> None:
    identity = IdentityOptions("rbac", tokens=tuple(each for each in USERS.values() if each.token))
    options = ClusterOptions(
        controllers=False,
        kubelet=None,
        heartbeats=False,
        tls=True,
        identity=identity,
        release=WIRE_RELEASE,
    )
    text = (TRANSCRIPTS / "kubectl" / "kubectl-discovery.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    recorded = [line for line in lines if "kubectl" in line and line["command"] in OF_USERS]
    assert [line["command"] for line in recorded] == list(OF_USERS)
    with served(EmbeddedCluster(0, options=options)) as cluster:
        config = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(config)
        written = config.read_text()
        differences = []
        for line in recorded:
            user = next(user for note, user in USERS.items() if line["note"].startswith(note))
            config.write_text(with_token(written, user.token or "wrong"))
            kubectl = Kubectl(program_of(RECORDED_WITH), tmp_path, config)
            differences += list(compared(line, kubectl, normalise, listed=False))
    assert differences == []
