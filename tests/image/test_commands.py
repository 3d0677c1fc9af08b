"""Every command in a container of the image: its user is a number, and the root is read-only."""

import json
import shlex
from pathlib import Path

from stellwerk_cli.cli import build_parser
from tests.image.conftest import BuiltImage
from tests.image.test_operator import free_port, replica, schedules, write_account
from tests.support.built_image import ACCOUNT_FOLDER, container
from tests.support.enforced_process import enforced_cluster
from tests.support.processes import until
from tests.support.repository import ROOT

CALLS = (
    # command line, exit status, what it prints or says
    ("version", 0, "Server"),
    ("version --client -o json", 0, "clientVersion"),
    ("help plan defrag", 0, "examples"),
    ("completion bash", 0, "complete"),
    ("explain pod default/web {port}", 0, "web"),
    ("queue -A -l app=web {port}", 0, ""),
    ("queue -A -l app==(web {port}", 2, "unable to parse requirement"),
    ("decisions -A {port}", 0, "web"),
    ("nodes {port}", 0, "node-1"),
    ("devices {port}", 0, ""),
    ("what-if --drain node-1 {port}", 0, "node-1"),
    ("what-if --pod /given/pod.yaml {port}", 0, "hello"),
    ("what-if --pod /given/misspelt.yaml {port}", 2, 'unknown field "spec.nodeSelectr"'),
    ("dump {port}", 0, "node-1"),
    ("doctor --kubeconfig /given/admin.kubeconfig", None, "lease"),
    ("leave --kubeconfig /given/admin.kubeconfig --timeout 2s", None, "stellwerk"),
    ("shadow diff other {port}", 1, "other"),
    ("observe report {port}", 0, "no profile observes another scheduler"),
    ("promote other --yes --kubeconfig /given/admin.kubeconfig", 1, "other"),
    ("profile history other --kubeconfig /given/admin.kubeconfig", 1, "other"),
    ("decide --kubeconfig /given/admin.kubeconfig --pod default/web", 0, "web"),
    ("convert /given/configuration.yaml", 0, "SchedulerProfile"),
    ("record /tmp/day.journal --for 2s --kubeconfig /given/admin.kubeconfig", 0, ""),
    ("simulate --replay /tmp/day.journal", 0, ""),
    ("plan profile best-fit --for /given/pod.yaml", 0, ""),
    ("page {port} --port {page}", 0, "the page's key will change at the next start"),
    ("cluster", 2, "no embedded cluster"),
    ("cluster fail node-1", 2, "no embedded cluster"),
    ("up", 2, "no embedded cluster"),
    ("up --detach", 2, "no embedded cluster"),
    ("down", 2, "no embedded cluster"),
    ("demo", 2, "no embedded cluster"),
    ("bench --nodes 1 --pods 1", 2, "no embedded cluster"),
)
DRIVER = """
import json, os, subprocess, sys
os.environ.pop("HOME", None)
answers = []
for line in json.loads(sys.argv[1]):
    done = subprocess.Popen(["stellwerk", *line], stdout=-1, stderr=-1, text=True)
    first = ""
    if line[0] == "page":  # it serves until it is told to end
        first = done.stdout.readline()
        done.terminate()
    printed, said = done.communicate(timeout=120)
    answers.append([done.returncode, first + printed, said])
print(json.dumps(answers), flush=True)
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  schedulerName: stellwerk
  nodeSelector: {}
  containers: [{name: main, image: pause}]
"""


async def test_every_command_runs(image: BuiltImage, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "pod.yaml").write_text(POD)
    (given / "misspelt.yaml").write_text(POD.replace("nodeSelector", "nodeSelectr"))
    example = ROOT / "tests/data/convert/doc-most-allocated.in.yaml"
    (given / "configuration.yaml").write_bytes(example.read_bytes())
    passwd = tmp_path / "passwd"
    passwd.write_text("root:x:0:0::/root:/nonexistent\n")  # the container's user has no line
    async with enforced_cluster(tmp_path, "--nodes", "3") as cluster:
        (given / "admin.kubeconfig").write_bytes((tmp_path / "admin.kubeconfig").read_bytes())
        environment = write_account(cluster, tmp_path / "account")
        mounts = {"/given": given, ACCOUNT_FOLDER: tmp_path / "account", "/etc/passwd": passwd}
        with replica(image, cluster, tmp_path / "operator") as operator:
            await operator.is_up()
            await schedules(cluster, "web", operator.running)
            port = (
                f"--url {operator.url} --insecure-skip-tls-verify "
                "--kubeconfig /given/admin.kubeconfig"
            )
            lines = [shlex.split(each.format(port=port, page=free_port())) for each, _, _ in CALLS]
            with container(
                image.name,
                image.root,
                tmp_path / "commands",
                [json.dumps(lines)],
                environment=environment,
                mounts=mounts,
                entrypoint=["python", "-c", DRIVER],
            ) as running:

                async def is_done() -> bool:
                    return running.process.poll() is not None

                await until(is_done)
    answers = json.loads(running.log.read_text().splitlines()[-1])
    wrong = []
    for (line, wanted, text), (status, printed, said) in zip(CALLS, answers, strict=True):
        # None: what the command finds in this cluster decides, and is tested elsewhere.
        as_wanted = wanted in {None, status} and text in printed + said
        if not as_wanted or "Traceback" in said:
            wrong.append(f"{line}: status {status}\n{printed[-1000:]}\n{said[-1000:]}")
        if text == "no embedded cluster":
            assert len(said.splitlines()) == 1, said
    assert not wrong, "\n\n".join(wrong)


def test_the_table_calls_every_command() -> None:
    (commands,) = [each for each in build_parser()._actions if each.choices]  # noqa: SLF001 no other way
    called = {line.split()[0] for line, _, _ in CALLS}
    assert called == {*map(str, commands.choices or ())} - {"run"}
