"""docs/operations.md, section by section: what the page tells an administrator to type works.

Each section has a cluster of its own, which enforces access rules. Another scheduler stands for
kube-scheduler, and for each pod of Stellwerk's Deployment a process runs with its arguments and its
service account, as a kubelet would run it.
"""

import asyncio
import json
import re
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import yaml

from stellwerk import __version__
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.identity.assembly import IdentityOptions
from tests.support.builders import make_pod
from tests.support.kubectls import forwarding_kubectl, helm
from tests.support.lease_scheduler import LeaseScheduler, Placements, kube_scheduler
from tests.support.pod_processes import PodProcesses, pod_processes
from tests.support.repository import ROOT
from tests.support.running_operator import until
from tests.support.shell_steps import Command, Happening, Shell, sections, shell

DOCUMENT = ROOT / "docs" / "operations.md"
SECTIONS = sections(DOCUMENT)
WALK = "A walk through, line by line"
FILES = "Install by files"
HELM = "Install with Helm"
ALONE = "Where it is the only scheduler"
UPGRADE = "Upgrade and downgrade"
BROKEN = "Upgrade from a broken installation"
UNINSTALL = "Uninstall"
DUMP = "Reading a dump"
ADDED_FIELD = "percentageOfNodesToScore"
IMAGE = "registry.example/stellwerk:"
"""What the user's image is called, whatever its tag."""
CONTROL_PLANE = "node-1"
OBSERVE = "Observe kube-scheduler, then change over"
IN_PLACE = "In place of kube-scheduler, and back"
NEEDED = ("charts", "crds", "manifests")
PROGRAMS = Path(sys.executable).parent


def cluster_of_an_administrator() -> EmbeddedCluster:
    """Without anything of Stellwerk's: not even the definition."""
    return EmbeddedCluster(
        3,
        options=ClusterOptions(
            identity=IdentityOptions("rbac", service_accounts=True),
            tls=True,
            kubelet=KubeletOptions(respect_grace=False),
        ),
    )


@dataclass
class Site:
    """A cluster, who works on it, and what became of its pods."""

    cluster: EmbeddedCluster
    other: LeaseScheduler
    processes: PodProcesses
    placements: Placements
    shell: Shell
    directory: Path

    @property
    def happenings(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """What the page leaves to the machines of the control plane."""
        return {
            "kube-scheduler ends": self.other.stop,
            "kube-scheduler starts": self.other.start,
            "a kubelet starts the static pod": self.start_static_pod,
            "a kubelet ends the static pod": self.end_static_pod,
        }

    async def take(self, section: str) -> None:
        """Do what a section says.

        Raises:
            AssertionError: a command does not do what the page says, or drops the user's image.
        """
        for step in SECTIONS[section]:
            try:
                if isinstance(step, Happening):
                    await self.happenings[step.words]()
                else:
                    await self.shell.take(step)
                if section != BROKEN:  # where the page itself asks for the image
                    self.check_images(step)
            except AssertionError as failure:
                failure.add_note(self.processes.log())
                raise

    def check_images(self, step: Command | Happening) -> None:
        """Hollow nodes pull nothing: on others, a pod with another image would not start."""
        templates = [each["spec"]["template"] for each in self.cluster.api.all("deployments.apps")]
        pods = [
            pod
            for namespace in ("stellwerk", "kube-system")
            for pod in self.cluster.api.all("pods", namespace)
        ]
        images = {
            container["image"]
            for pod in (*templates, *pods)
            for container in pod["spec"]["containers"]
        }
        assert all(image.startswith(IMAGE) for image in images), (step, images)

    async def install_as_the_page_says(self) -> None:
        """Write the kustomization that the other sections apply."""
        overlay = SECTIONS[FILES][0]
        assert isinstance(overlay, Command)
        await self.shell.take(overlay)

    async def start_static_pod(self) -> None:
        """What the kubelet of the control plane does with the file."""
        self.processes.start_static(self.directory / "stellwerk.yaml", CONTROL_PLANE)

    async def end_static_pod(self) -> None:
        """The same, when the file is taken away."""
        self.processes.end_static(CONTROL_PLANE)
        await until(lambda: not self.processes.running)


@asynccontextmanager
async def reader(directory: Path, environment: Mapping[str, str]) -> AsyncIterator[Shell]:
    """A shell in a directory that has what a clone has."""
    for name in NEEDED:
        (directory / name).symlink_to(ROOT / name)
    programs = (forwarding_kubectl(directory), helm(), PROGRAMS / "stellwerk")
    async with shell(directory, environment, *programs) as opened:
        yield opened


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
    async with cluster_of_an_administrator() as cluster:
        kubeconfig = directory / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        (directory / "admin.conf").symlink_to(kubeconfig)
        placements = Placements(cluster)
        async with (
            kube_scheduler(cluster) as other,
            pod_processes(cluster, directory) as processes,
            reader(directory, {"KUBECONFIG": str(kubeconfig)}) as opened,
        ):
            yield Site(cluster, other, processes, placements, opened, directory)
        # A process that was asked to end before it could listen has the signal's own status.
        assert set(processes.statuses) <= {0, -signal.SIGTERM}, processes.log()


def previous_release(directory: Path) -> None:
    """A clone of an older release: its definition lacks a field, and its image has another tag."""
    definition = crd_manifest()
    (version,) = definition["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][ADDED_FIELD]
    shutil.copytree(ROOT / "crds", directory / "crds")
    (directory / "crds" / "schedulerprofiles.yaml").write_text(yaml.safe_dump(definition))
    shutil.copytree(ROOT / "manifests", directory / "manifests")
    deployment = directory / "manifests" / "20-deployment.yaml"
    image = f"image: stellwerk:{__version__}"
    assert image in deployment.read_text()
    deployment.write_text(deployment.read_text().replace(image, "image: stellwerk:0.0.9"))


CRASHES = {"stellwerk.dev/run-seconds": "0", "stellwerk.dev/exit-code": "1"}
"""Annotations by which the containers of hollow pods end as soon as they have started."""


def broken_release(directory: Path) -> None:
    """A clone of an older release whose pods crash, by files and as a chart."""
    previous_release(directory)
    deployment = directory / "manifests" / "20-deployment.yaml"
    manifest = yaml.safe_load(deployment.read_text())
    manifest["spec"]["template"]["metadata"]["annotations"] = CRASHES
    deployment.write_text(yaml.safe_dump(manifest))
    shutil.copytree(ROOT / "charts", directory / "charts")
    values = directory / "charts" / "stellwerk" / "values.yaml"
    text = values.read_text()
    assert "podAnnotations: {}" in text
    values.write_text(text.replace("podAnnotations: {}", f"podAnnotations: {CRASHES}"))


def test_every_section_with_commands_is_known() -> None:
    assert set(SECTIONS) == {
        WALK,
        FILES,
        HELM,
        OBSERVE,
        IN_PLACE,
        ALONE,
        UPGRADE,
        BROKEN,
        UNINSTALL,
        DUMP,
    }


async def test_a_newcomer_can_follow_the_walk_through(tmp_path: Path) -> None:
    async with reader(tmp_path, {}) as opened:
        for step in SECTIONS[WALK]:
            assert not isinstance(step, Happening)
            await opened.take(step)


@pytest.mark.parametrize("section", [FILES, pytest.param(HELM, marks=pytest.mark.long)])
async def test_installing_as_the_page_says(section: str, tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await prepared.take(section)
        await until(lambda: not prepared.placements.waiting())


async def test_an_apply_past_the_users_kustomization_is_noticed(tmp_path: Path) -> None:
    """What other steps are judged by can fail."""
    async with site(tmp_path) as prepared:
        await prepared.other.stop()  # no pod has to run for it
        await prepared.install_as_the_page_says()
        for command, keeps in (
            ("kubectl apply -k mine", True),
            ("kubectl apply -k manifests", False),
        ):
            step = Command(command)
            await prepared.shell.take(step)
            with nullcontext() if keeps else pytest.raises(AssertionError, match="stellwerk:"):
                prepared.check_images(step)


@pytest.mark.slow
async def test_the_pods_of_kube_scheduler_change_hands_and_none_is_left_or_bound_twice(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as prepared:
        await prepared.install_as_the_page_says()
        arriving = asyncio.create_task(create_steadily(prepared.cluster))
        await prepared.take(IN_PLACE)
        arriving.cancel()
        await asyncio.wait({arriving})
        await until(lambda: not prepared.placements.waiting())
        assert set(prepared.placements.of.values()) == {1}
        assert prepared.other.bound < prepared.placements.of.keys(), "both have decided"


@pytest.mark.long
async def test_an_observer_changes_over_and_back_and_no_pod_is_left_or_bound_twice(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as prepared:
        await prepared.install_as_the_page_says()
        arriving = asyncio.create_task(create_steadily(prepared.cluster))
        await prepared.take(OBSERVE)
        arriving.cancel()
        await asyncio.wait({arriving})
        await until(lambda: not prepared.placements.waiting())
        assert set(prepared.placements.of.values()) == {1}
        assert prepared.other.bound < prepared.placements.of.keys(), "both have decided"
        log = prepared.processes.log()
        refused = [line for line in log.splitlines() if " 403 " in line]
        assert refused == [], "something was asked for without the right"


@pytest.mark.long
async def test_the_only_scheduler_comes_back_when_all_its_pods_were_away(tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await prepared.install_as_the_page_says()
        await prepared.take(ALONE)
        await until(lambda: not prepared.placements.waiting())
        assert set(prepared.placements.of.values()) == {1}
        log = (tmp_path / f"stellwerk-stellwerk-{CONTROL_PLANE}.log").read_text()
        assert log.count("successfully acquired lease kube-system/kube-scheduler") == 2
        refused = [line for line in log.splitlines() if "orbidden" in line or " 403 " in line]
        assert refused == [], "the static pod's users lack a right"


async def create_steadily(cluster: EmbeddedCluster) -> None:
    """Pods that name no scheduler, five a second."""
    for number in count():
        pod = make_pod(f"arriving-{number}", cpu="1m")
        del pod["metadata"]["uid"]
        cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod)
        await asyncio.sleep(0.2)


NOTES = re.compile(r"^  (\S.*?(?:\\\n.*?)*)$", re.MULTILINE)
"""The commands that the chart prints, with the lines that go on."""
EMERGENCY = "stellwerk run"


@pytest.mark.long
@pytest.mark.parametrize(
    ("release", "namespace", "values"),
    [
        pytest.param("stellwerk", "stellwerk", "replicas=2", id="plain"),
        pytest.param("stellwerk", "scheduling", "takeOverDefaultScheduler=true", id="in place"),
        pytest.param("gpu", "stellwerk", "operatorName=gpu", id="of another name"),
    ],
)
async def test_the_commands_that_the_chart_prints(
    release: str, namespace: str, values: str, tmp_path: Path
) -> None:
    """`explain` by a user who has the roles of explanations and nothing else."""
    async with site(tmp_path) as prepared:
        install = (
            f"helm install {release} charts/stellwerk --namespace {namespace} --create-namespace "
            f"--set image.repository={IMAGE[:-1]} --set {values}"
        )
        status, notes = await prepared.shell.run(install)
        assert status == 0, notes
        commands = NOTES.findall(notes)
        for command in commands[:2]:
            await prepared.shell.take(Command(command))
        is_in_place = "takeOver" in values
        scheduler = release
        if is_in_place:
            await prepared.other.stop()
            scheduler = "default-scheduler"
        name = "stellwerk" if release == "stellwerk" else f"{release}-stellwerk"
        overrides = shlex.quote(json.dumps({"spec": {"schedulerName": scheduler}}))
        for command in (
            "kubectl wait --for=create schedulerprofile --all --timeout=60s",
            "kubectl wait --for=condition=Active schedulerprofile --all --timeout=60s",
            f"kubectl run hello --image=registry.k8s.io/pause:3.10 --overrides={overrides}",
            "kubectl wait --for=condition=Ready pod/hello --timeout=60s",
            *reader_commands(name, namespace, "kube-system" if is_in_place else ""),
        ):
            await prepared.shell.take(Command(command))
        ran = []
        for command in commands[2:]:
            text = re.sub(r"\bNAME\b", "hello", command).replace("CHART", "charts/stellwerk")
            if "stellwerk explain" in text:
                text = f"KUBECONFIG=$PWD/ann {text}"
            if text.startswith(EMERGENCY):
                # It stands by behind the operator, which is there.
                text = (
                    f"{text} --bind-address 127.0.0.1:0 > run.log 2>&1 & "
                    "until grep 'attempting to acquire leader lease kube-system/kube-scheduler' "
                    "run.log; do sleep 0.2; done; kill %1; wait %1"
                )
            await prepared.shell.take(Command(text))
            ran.append(text)
        assert sum("stellwerk explain" in text for text in ran) == 1
        assert any(text.startswith(EMERGENCY) for text in ran) is is_in_place


def reader_commands(name: str, *namespaces: str) -> Iterator[str]:
    """Make the user ann, with what the chart says that readers of explanations need."""
    reader, subject = f"{name}-explanations-reader", "--serviceaccount=default:ann"
    yield "kubectl create serviceaccount ann"
    yield f"kubectl create clusterrolebinding ann --clusterrole={reader} {subject}"
    for namespace in filter(None, namespaces):
        yield f"kubectl create rolebinding ann --role={reader} {subject} --namespace={namespace}"
    yield "cp $KUBECONFIG ann; token=$(kubectl create token ann)"
    yield "kubectl config --kubeconfig=ann set-credentials ann --token=$token"
    yield "kubectl config --kubeconfig=ann set-context --current --user=ann"


@pytest.mark.long
async def test_the_definition_changes_up_and_down_under_a_running_operator(tmp_path: Path) -> None:
    previous_release(tmp_path / "previous")
    async with site(tmp_path) as prepared:
        await prepared.install_as_the_page_says()
        overlay = tmp_path / "mine" / "kustomization.yaml"
        overlay.write_text(overlay.read_text().replace("../manifests", "../previous/manifests"))
        await prepared.take(UPGRADE)


@pytest.mark.long
async def test_an_installation_whose_pods_crash_is_upgraded(tmp_path: Path) -> None:
    broken_release(tmp_path / "broken")
    async with site(tmp_path) as prepared:
        await prepared.install_as_the_page_says()
        await prepared.take(BROKEN)


@pytest.mark.slow
async def test_uninstalling_leaves_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await prepared.install_as_the_page_says()
        await prepared.take(UNINSTALL)
        await until(lambda: not prepared.processes.running)
        kept = {name: marks for name, marks in marked(prepared.cluster) if marks}
        assert kept == {}


def marked(cluster: EmbeddedCluster) -> Iterator[tuple[str, list[str]]]:
    """Every object with what an operator could have left on it."""
    for collection in cluster.store.names():
        for entry in cluster.store.collection(collection).entries():
            metadata = entry.obj["metadata"]
            marks = [
                *(metadata.get("finalizers") or ()),
                *(metadata.get("annotations") or ()),
                *(metadata.get("labels") or ()),
            ]
            name = f"{collection} {metadata.get('namespace', '')}/{metadata['name']}"
            yield name, [mark for mark in marks if "stellwerk" in mark or "kopf" in mark]


async def test_a_dump_says_what_the_page_says(tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await prepared.take(DUMP)


def test_the_metrics_of_the_page_are_those_of_the_operator() -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    named = re.findall(r"`((?:scheduler|stellwerk|rest_client|leader_election)_[a-z_]+)\b", page)
    families = {family.name for family in Metrics().families}
    assert set(named) - families == set()


async def test_profiles_of_a_later_definition_are_served_as_far_as_they_are_known(
    tmp_path: Path,
) -> None:
    """Stored in a version that this release does not know, and then with a field of that one."""
    definition = crd_manifest()
    (version,) = definition["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["fromTomorrow"] = {"type": "string"}
    later = {**version, "name": "v1beta1"}
    definition["spec"]["versions"] = [{**version, "storage": False}, later]
    (tmp_path / "later.yaml").write_text(yaml.safe_dump(definition))
    profile = {
        "apiVersion": "scheduling.stellwerk.dev/v1beta1",
        "kind": "SchedulerProfile",
        "metadata": {"name": "later"},
        "spec": {"schedulerName": "later"},
    }
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(profile))
    async with site(tmp_path) as prepared:
        for text in (
            "kubectl apply -f later.yaml -f manifests/",
            "kubectl apply -f profile.yaml",
            "kubectl wait --for=condition=Active schedulerprofile/later --timeout=60s",
            'kubectl patch sprof later --type=merge -p \'{"spec":{"fromTomorrow":"x"}}\'',
            "kubectl wait --for=condition=Accepted=false schedulerprofile/later --timeout=60s",
            "kubectl get sprof later -o yaml | grep 'fromTomorrow: unknown field'",
            "kubectl wait --for=condition=Active schedulerprofile/later --timeout=60s",
        ):
            await prepared.shell.take(Command(text))
