"""Files of every kind with something odd in them, given to every command that reads such a file.

`python -m tests.flows.file_fuzzing --rounds N --seed S` ends with 1 at the first finding, and
says which command and which file it was. Invariant: a run follows from its seed; nothing is served.
"""

import argparse
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from types import FrameType
from typing import Final

from typing_extensions import override

from stellwerk_cli.cli import main
from tests.support.repository import ROOT

MAX_CPU_SECONDS: Final = 20.0
"""Seconds of CPU for one command and one file. The largest file here is read in 3."""
MAX_WAIT_SECONDS: Final = 120
MAX_GROWTH_BYTES: Final = 600 << 20
"""Bytes by which the process may grow in a run; the solver of plans takes 200 MiB of them."""
MAX_SAID: Final = 6_000
"""Characters on standard error, of which a remark takes up to a kilobyte."""
_DATA: Final = ROOT / "tests" / "data"

NODE: Final = """\
apiVersion: v1
kind: Node
metadata: {name: n1, creationTimestamp: "2026-01-01T00:00:00Z", labels: {zone: a}}
spec: {taints: [{key: a, value: b, effect: NoSchedule}], unschedulable: false}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: 110}, capacity: {cpu: "4", memory: 8Gi}}
"""
POD: Final = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default, labels: {app: web}, annotations: {note: text}}
spec:
  priority: 3
  nodeSelector: {zone: a}
  tolerations: [{key: a, operator: Exists, tolerationSeconds: 3}]
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: zone
    whenUnsatisfiable: DoNotSchedule
    labelSelector: {matchLabels: {app: web}}
  containers:
  - name: c
    image: i
    ports: [{containerPort: 80, hostPort: 80}]
    resources: {requests: {cpu: 100m, memory: 64Mi}}
"""
BOUND: Final = POD.replace("name: p,", "name: q,") + "  nodeName: n2\n"
DEPLOYMENT: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c, image: i, resources: {limits: {cpu: "1"}}}]}
"""
BUDGET: Final = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: b, namespace: default}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}
status: {disruptionsAllowed: 1, currentHealthy: 1, desiredHealthy: 0, expectedPods: 1}
"""
PROFILE: Final = """\
apiVersion: scheduling.stellwerk.dev/v1alpha1
kind: SchedulerProfile
metadata: {name: own, generation: 1}
spec:
  schedulerName: stellwerk
  plugins: {score: {enabled: [{name: NodeResourcesFit, weight: 2}]}}
  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
"""
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: default}}]
users: [{name: u, user: {token: secret}}]
"""
FAULTS: Final = """\
seed: 7
faults:
- {fault: delay, seconds: [0.1, 2], moment: after}
- {fault: answer, code: 429, retryAfter: [1, {date: 5}], every: 3, between: [1, 2.5]}
- {fault: outage, between: [10, 20], history: older, revisions: 50}
"""
STAGES: Final = """\
stages:
- match: {namespace: default, owner: StatefulSet, labels: {app: database}}
  startSeconds: 30
  readySeconds: 60
"""
KUBELET: Final = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 100Mi}
systemReserved: {cpu: 100m, memory: 1Gi}
evictionMaxPodGracePeriod: 30
"""
SWEEP: Final = f"""\
clusters:
- {{name: a, nodes: {_DATA}/simulation/nodes.csv, pods: {_DATA}/simulation/pods.csv}}
profiles: [best-fit]
seeds: {{from: 1, to: 1}}
"""
TOKENS: Final = 'secret,admin,1,"system:masters"\n'


def seeds() -> dict[str, bytes]:
    """A file of each kind that can be read; the name ends as such a file's name does."""
    node = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "a"},
            "status": {"allocatable": {"cpu": "4", "pods": "3"}},
        }
    )
    pod = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
    )
    texts = {
        "cluster.yaml": "---\n".join(
            (NODE, NODE.replace("n1", "n2"), BOUND, POD, DEPLOYMENT, BUDGET)
        ),
        "list.json": f'{{"kind": "List", "items": [{node}, {pod}]}}',
        "nodes.yaml": NODE,
        "pod.yaml": POD,
        "case.jsonl": f'{{"id": "x", "nodes": [{node}], "pods": [], "pod": {pod}}}\n',
        "profile.yaml": PROFILE,
        "kubeconfig": KUBECONFIG,
        "faults.yaml": FAULTS,
        "stages.yaml": STAGES,
        "kubelet.yaml": KUBELET,
        "sweep.yaml": SWEEP,
        "tokens.csv": TOKENS,
    }
    files = {
        "devices.yaml": ROOT / "operator/stellwerk_cluster/hollow/devices/gpus.yaml",
        "configuration.yaml": _DATA / "convert" / "v1-everything.in.yaml",
        "policy.yaml": _DATA / "convert" / "policy-full.in.yaml",
        "nodes.csv": _DATA / "simulation" / "nodes.csv",
        "pods.csv": _DATA / "simulation" / "pods.csv",
        "recording.journal": _DATA / "recordings" / "devices.journal",
    }
    return {
        **{name: text.encode() for name, text in texts.items()},
        **{name: file.read_bytes()[: 64 << 10] for name, file in files.items()},
    }


def commands(port: int, good: Path) -> dict[str, list[str]]:
    """Command lines by the kinds of files that they read; `@` is the file.

    What a command needs beside it lies in `good`, as it should be. A cluster
    cannot be served on the port, which is taken, and no operator answers there.
    """
    cluster = f"cluster --port {port} --kubeconfig {good}/written"
    csv = _DATA / "simulation"
    traced = f"simulate --nodes {csv}/nodes.csv --pods {csv}/pods.csv --inflate 0.1 --jobs 1"
    return {
        "cluster.yaml list.json": [
            "decide @",
            "decide -f @ -o json",
            "plan defrag @ --free nodes=1",
            "simulate -f @ --jobs 1",
        ],
        "nodes.yaml": [
            f"{cluster} --nodes @",
            f"what-if --add-nodes @ --url http://127.0.0.1:{port}",
            f"plan fit --for {good}/pod.yaml --shapes @ --seconds 2",
        ],
        "pod.yaml": [
            f"what-if -f @ --kubeconfig {good}/kubeconfig --url http://127.0.0.1:{port}",
            f"plan fit --for @ --shapes {good}/nodes.yaml --seconds 2",
            "plan profile best-fit --for @",
        ],
        "case.jsonl": ["decide @", "decide @ -o yaml"],
        "profile.yaml": [
            f"what-if --profile @ --drain n1 --url http://127.0.0.1:{port}",
            f"{traced} --profile @",
            f"what-if --recording {_DATA}/recordings/devices.journal --profile @",
        ],
        "kubeconfig": [
            "explain pod x --kubeconfig @",
            "plan defrag --free nodes=1 --kubeconfig @",
            "queue --kubeconfig @",
        ],
        "faults.yaml": [f"{cluster} --nodes 1 --faults @"],
        "stages.yaml": [f"{cluster} --nodes 1 --stages @"],
        "kubelet.yaml": [f"{cluster} --nodes 1 --kubelet-config @"],
        "devices.yaml": [f"{cluster} --nodes 1 --devices @"],
        "tokens.csv": [f"{cluster} --nodes 1 --authorization rbac --token-auth-file @"],
        "sweep.yaml": ["simulate --sweep @ --jobs 1"],
        "configuration.yaml policy.yaml": ["convert @"],
        "nodes.csv": [f"simulate --nodes @ --pods {csv}/pods.csv --inflate 0.1 --jobs 1"],
        "pods.csv": [
            f"simulate --nodes {csv}/nodes.csv --pods @ --inflate 0.1 --jobs 1",
            "plan profile best-fit --for @",
        ],
        "recording.journal": [
            "simulate --replay @",
            f"what-if --recording @ --profile {good}/profile.yaml",
        ],
    }


VALUES: Final = (
    *(b"9" * 1_000_000, b"-" + b"9" * 30, b"0x" + b"f" * 100_000, b"1" + b"0" * 300, b"1e999"),
    *(b"1.0e+999", b".inf", b".nan", b"-.inf", b"-1", b"0", b"1.5", b"1:" * 1000 + b"1", b"010"),
    *(b"9999-99-99", b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59-14:00", b"0000-00-00"),
    *(b'"9999-99-99"', b'"0001-01-01T00:00:00+14:00"', b'"9999-12-31T23:59:59-14:00"'),
    *(b"2026-01-01", b"null", b"~", b"[]", b"{}", b"[[]]", b"{a: b}", b"true", b"y", b'""', b"' '"),
    *(
        b"=",
        b"<<",
        b"{<<: {a: b}}",
        b"*nothing",
        b"&a [*a]",
        b"!!set {a}",
        b"!!binary /w==",
        b"!x y",
    ),
    *(b"!!timestamp 2026-01-01", b"!!int abc", b"!!float abc", b"!!omap [a: b]", b"{[a]: b}"),
    *(b'"\\ud800"', b'"\\x1b]0;t\\x07[/bold]:skull:\\u202e"', b"x" * 1_000_000, b'"a\\nb"'),
    *(
        b"[" * 300 + b"]" * 300,
        b"[" * 100_000,
        b"{a: " * 300 + b"1" + b"}" * 300,
        b"{{ .Values.x }}",
    ),
    *(b"999999999999999999999Ei", b"1e-400", b"-5", b"150%", b"9223372036854775808", b"\x00"),
)
"""What stands in the place of a value: numbers, times, texts and structures that few expect."""
_ENDS: Final = b" \t\n,}]\"'"


def with_a_value(random: Random, content: bytes) -> bytes:
    """The file with one of the odd values in place of one of its own."""
    starts = [
        at + 1 for at in range(len(content) - 1) if content[at : at + 1] in (b":", b",", b" ", b"[")
    ]
    if not starts:
        return random.choice(VALUES)
    start = random.choice(starts)
    while start < len(content) - 1 and content[start : start + 1] in (b" ", b'"'):
        start += 1
    end = start
    while end < len(content) and content[end : end + 1] not in [bytes([each]) for each in _ENDS]:
        end += 1
    return content[:start] + b" " + random.choice(VALUES) + content[end:]


def with_other_bytes(random: Random, content: bytes) -> bytes:
    """The file with a few bytes that are others."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(changed)) if changed else 0
        changed[at : at + random.choice((0, 1, 1, 4))] = random.randbytes(
            random.choice((0, 1, 1, 4))
        )
    return bytes(changed)


def cut_or_doubled(random: Random, content: bytes) -> bytes:
    """The file without its end, without a line, with a line twice, or with itself behind it."""
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    return random.choice(
        (
            content[: random.randrange(len(content) + 1)],
            b"\n".join(lines[:at] + lines[at + 1 :]),
            b"\n".join(lines[:at] + lines[at : at + 1] * 2 + lines[at + 1 :]),
            content + content,
            content + b"\n---\n" + content,
            b"\xef\xbb\xbf" + content,
            content.replace(b"\n", b"\r\n"),
            b"",
        )
    )


MUTATIONS: Final[tuple[Callable[[Random, bytes], bytes], ...]] = (
    with_a_value,
    with_a_value,
    with_other_bytes,
    cut_or_doubled,
)


class TooLong(Exception):  # noqa: N818 raised by an alarm
    """A command has not come to an end."""


def judged(arguments: list[str]) -> str:
    """Run a command in this process; returns what is wrong with how it ended, or nothing."""
    printed, said = io.StringIO(), io.StringIO()
    began = time.process_time()
    signal.alarm(MAX_WAIT_SECONDS)
    try:
        with redirect_stdout(printed), redirect_stderr(said):
            status = main(arguments)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except (Exception, RecursionError):  # noqa: BLE001 what a user would see as a traceback
        return traceback.format_exc()[-3000:]
    finally:
        signal.alarm(0)
    took = time.process_time() - began
    lines = said.getvalue().splitlines()
    if took > MAX_CPU_SECONDS:
        return f"took {took:.1f} s of CPU"
    if "Traceback" in said.getvalue() or len(said.getvalue()) > MAX_SAID:
        return f"said {len(said.getvalue())} characters: {said.getvalue()[:2000]}"
    if status == 0 or (status == 1 and printed.getvalue()):
        return ""
    asks = {"--url", "--kubeconfig"} & set(arguments)
    if status in ({1, 2, 3} if asks else {2}) and lines and lines[-1].startswith("stellwerk"):
        return ""
    return f"ended with {status}: {said.getvalue()[:500]!r}"


class Nothing(BaseHTTPRequestHandler):
    """An API server or an operator that has nothing: what is asked of it ends at once."""

    def answer(self) -> None:
        """Say that it is not there."""
        body = b'{"kind": "Status", "code": 404, "message": "not found"}'
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", f"{len(body)}")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer  # noqa: N815 as http.server names them

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: standard error is looked at."""


def inputs(random: Random, rounds: int, port: int, good: Path) -> Iterator[tuple[str, str, bytes]]:
    """(command line, name of the file, its content), each command as often as another."""
    contents = seeds()
    contents["kubeconfig"] = contents["kubeconfig"].replace(b':9"', f':{port}"'.encode())
    for kind, content in contents.items():
        (good / kind).write_bytes(content)
    table = [
        (line, kind)
        for kinds, lines in commands(port, good).items()
        for kind in kinds.split()
        for line in lines
    ]
    for line, kind in table:
        yield line, kind, contents[kind]
    for _ in range(rounds):
        for line, kind in table:
            content = contents[kind]
            for _ in range(random.choice((1, 1, 1, 2))):
                content = random.choice(MUTATIONS)(random, content)
            yield line, kind, content


def run(rounds: int, seed: int, last: Path | None) -> int:
    """Give the files to the commands; prints how many each was given."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, end)
    os.environ |= {"KUBECONFIG": "/nonexistent", "COLUMNS": "200"}
    server = HTTPServer(("127.0.0.1", 0), Nothing)
    Thread(target=server.serve_forever, daemon=True).start()
    number = server.server_port
    given: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as good:
        os.chdir(directory)
        for line, kind, content in inputs(Random(seed), rounds, number, Path(good)):
            file = Path(directory) / kind
            file.write_bytes(content)
            if last is not None:
                last.write_bytes(f"{line}\n".encode() + content)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            found = judged([str(file) if word == "@" else word for word in line.split()])
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
            if grown > MAX_GROWTH_BYTES:
                found = found or f"grew by {grown >> 20} MiB"
            if found:
                sys.stdout.write(f"{line}\n{found}\n{content[:2000]!r}\n")
                return 1
            name = " ".join(line.split()[:2])
            given[name] = given.get(name, 0) + 1
    sys.stdout.write(f"inputs {json.dumps(given)}\n")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--last", type=Path)
    options = parser.parse_args()
    sys.exit(run(options.rounds, options.seed, options.last))
