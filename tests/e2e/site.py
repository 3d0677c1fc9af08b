"""The cluster that the user names, and Stellwerk's installation on it, for the steps of `make e2e`.

Nothing here knows the embedded cluster: kubectl, helm and `stellwerk` do all of it, as the user's
own credentials allow. Invariant: the cluster is the one that E2E_CONTEXT names, Stellwerk was not
on it before, and what is deleted was made here.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from typing_extensions import override

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import milli_units
from stellwerk_kube.resource_amounts import resource_amounts
from tests.support.kubectls import Done, Kubectl, helm, newest, program_of
from tests.support.repository import ROOT

NAMESPACE: Final = "stellwerk-e2e"
"""The namespace of all pods of the steps, and the prefix of what has no namespace."""
MADE_HERE: Final = {"stellwerk-e2e": "made"}
"""The label of what has no namespace, by which it is deleted also after a step that failed."""
OPERATORS_NAMESPACE: Final = "stellwerk"
DEPLOYMENT: Final = "deployment/stellwerk"
DEADLINE_SECONDS: Final = 180.0
"""Longer than any step takes on a slow cluster: images are pulled, and a dead leader's lease (15 s)
runs out.
"""
_POLL_SECONDS: Final = 0.5
_STREAM_SECONDS: Final = 0.5
"""Between two pods of a stream; a pod that finds no leader is not the last one to come."""
_DEFINITION: Final = "customresourcedefinitions/schedulerprofiles.scheduling.stellwerk.dev"


class Refusal(Exception):  # noqa: N818 - named as the thing that happened
    """The steps do not run on this cluster; the message says why."""


def context_of(environment: Mapping[str, str], contexts: list[str], current: str) -> str:
    """The context that the steps may use.

    Raises:
        Refusal: the user has not named it, or the kubeconfig does not have it.
    """
    if not environment.get("IMAGE"):
        raise Refusal("name the image that the nodes can pull: IMAGE=registry.example/stellwerk:1")
    wanted = environment.get("E2E_CONTEXT", "")
    known = ", ".join(sorted(contexts)) or "none"
    if not wanted:
        raise Refusal(
            "say which cluster this is: E2E_CONTEXT=NAME of a context of the kubeconfig "
            f"({known}; its current one is {current or 'none'})"
        )
    if wanted not in contexts:
        raise Refusal(f"the kubeconfig has no context {wanted}: it has {known}")
    return wanted


def image_fields(image: str) -> dict[str, str]:
    """Name, and tag or digest, of an image; the port of a registry is no tag."""
    name, at, digest = image.partition("@")
    if at:
        return {"name": name, "digest": digest}
    before, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        return {"name": before, "tag": tag}
    return {"name": name, "tag": "latest"}


@dataclass
class Site:
    """A cluster that was looked at and found to be free of Stellwerk."""

    kubectl: Kubectl
    folder: Path
    image: str
    is_hollow: bool
    """Whether the nodes run no containers."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    marks_before: frozenset[str] = frozenset()
    """What the cluster has by names of ours without Stellwerk."""

    @property
    def busybox(self) -> str:
        return self.environment.get("E2E_BUSYBOX") or "busybox:1.36"

    @property
    def pause(self) -> str:
        return self.environment.get("E2E_PAUSE") or "registry.k8s.io/pause:3.10"

    # --- reading and writing ----------------------------------------------------------------------

    def run(self, *arguments: str, stdin: str = "", seconds: float = DEADLINE_SECONDS) -> str:
        """What kubectl prints; it has to succeed."""
        done = self.kubectl.run(*arguments, stdin=stdin, seconds=seconds)
        assert done.code == 0, f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def get(self, *arguments: str) -> JsonObject:
        """An object, or a List."""
        found: JsonObject = json.loads(self.run("get", *arguments, "-o", "json"))
        return found

    def pods(self, selector: str = "", namespace: str = NAMESPACE) -> list[JsonObject]:
        chosen = [f"--selector={selector}"] if selector else []
        items: list[JsonObject] = self.get("pods", "-n", namespace, *chosen)["items"]
        return items

    def pod(self, name: str) -> JsonObject:
        return self.get("pod", name, "-n", NAMESPACE)

    def apply(self, *objects: JsonObject) -> None:
        self.run("apply", "-f", "-", stdin=_written(objects))

    def delete(self, *objects: JsonObject) -> None:
        """Delete what a step has made, and wait until it is gone."""
        arguments = ("delete", "--ignore-not-found", "--timeout=120s", "-f", "-")
        self.run(*arguments, stdin=_written(objects))

    def until(
        self, what: str, condition: Callable[[], Any], seconds: float = DEADLINE_SECONDS
    ) -> Any:
        """Wait for what the condition returns; fails with the words and the last value."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, (
                f"not within {seconds:.0f} s: {what}; last {found!r}"
            )
            time.sleep(_POLL_SECONDS)
        return found

    def wait(self, condition: str, *what: str, namespace: str = NAMESPACE) -> None:
        """`kubectl wait`."""
        limit = f"--timeout={DEADLINE_SECONDS:.0f}s"
        self.run(
            *("wait", f"--for={condition}", *what, "-n", namespace, limit),
            seconds=DEADLINE_SECONDS + 10,
        )

    def marks(self) -> frozenset[str]:
        """What all objects of the cluster have by names of Stellwerk's or its framework's."""
        kinds = self.run("api-resources", "--verbs=list", "-o", "name").split()
        # Events outlive what they are about by an hour, in whatever namespace that was.
        asked = ",".join(kind for kind in kinds if kind.partition(".")[0] != "events")
        return frozenset(
            f"{obj['kind']} {of.get('namespace', '')}/{of['name']}: {mark}"
            for obj in self.get(asked, "--all-namespaces")["items"]
            for of in [obj["metadata"]]
            if NAMESPACE not in {of["name"], of.get("namespace")}
            for mark in _marks(of)
            if "stellwerk" in mark or "kopf" in mark
        )

    def stellwerk(self, *arguments: str) -> JsonObject:
        """The answer of a command, in JSON, through a port that kubectl forwards."""
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "stellwerk_cli", *arguments, "-o", "json"],
            env={
                **self.environment,
                "PATH": f"{self.kubectl.program.parent}{os.pathsep}{self.environment['PATH']}",
                "KUBECONFIG": str(self.kubectl.kubeconfig),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            printed, said = process.communicate(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it says where it stands
            printed, said = process.communicate()
        assert process.returncode == 0, f"stellwerk {' '.join(arguments)}: {said}"
        answer: JsonObject = json.loads(printed)
        return answer

    # --- nodes ------------------------------------------------------------------------------------

    def nodes(self) -> list[JsonObject]:
        """The nodes that take any pod: those that are not ready have a taint."""
        return [node for node in self.get("nodes")["items"] if not node["spec"].get("taints")]

    def free_cpu_millis(self, node: JsonObject) -> int:
        """Millicores of a node that no pod has asked for."""
        name = node["metadata"]["name"]
        on_it = f"--field-selector=spec.nodeName={name}"
        taken = sum(
            resource_amounts(pod["spec"], pod["status"]).requests.get("cpu", 0)
            for pod in self.get("pods", "--all-namespaces", on_it)["items"]
            if pod["status"].get("phase") not in {"Succeeded", "Failed"}
        )
        return milli_units(node["status"]["allocatable"]["cpu"]) - taken

    # --- the operator -----------------------------------------------------------------------------

    def holder(self, lease: str = "stellwerk", namespace: str = OPERATORS_NAMESPACE) -> str:
        """The name in a lease; empty: nobody has it."""
        found = self.run("get", "lease", lease, "-n", namespace, "--ignore-not-found", "-o", "json")
        spec = json.loads(found)["spec"] if found else {}
        return str(spec.get("holderIdentity") or "")

    def leader(self, lease: str = "stellwerk", namespace: str = OPERATORS_NAMESPACE) -> str:
        """The host name in a lease, which is that of the pod; empty: nobody has it."""
        return self.holder(lease, namespace).rpartition("_")[0]

    @contextmanager
    def stream(self, name: str) -> Iterator[list[str]]:
        """Create a pod every half second; at the end every one has got a node, once.

        Yields their names, to which each is added when it was created.
        """
        created: list[str] = []
        failures: list[BaseException] = []
        enough = Event()

        def create() -> None:
            try:
                while not enough.wait(_STREAM_SECONDS):
                    pod = f"{name}-{len(created)}"
                    self.apply(self.pod_manifest(pod, labels={"stream": name}))
                    created.append(pod)
            except BaseException as failure:  # noqa: BLE001 raised by who waits for the thread
                failures.append(failure)

        thread = Thread(target=create, name=f"stream {name}")
        thread.start()
        try:
            yield created
        finally:
            enough.set()
            thread.join()
        if failures:
            raise failures[0]
        self.until(f"every pod of {name} has a node", lambda: not self._nodeless(name))
        pods = self.pods(f"stream={name}")
        assert sorted(pod["metadata"]["name"] for pod in pods) == sorted(created)
        self.run("delete", "pods", f"--selector=stream={name}", "-n", NAMESPACE, "--timeout=120s")

    def _nodeless(self, name: str) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.pods(f"stream={name}")
            if not pod["spec"].get("nodeName")
        ]

    # --- manifests --------------------------------------------------------------------------------

    def pod_manifest(
        self,
        name: str,
        *,
        command: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        cpu: str = "5m",
        scheduler: str = "stellwerk",
        **spec: Any,
    ) -> JsonObject:
        """A pod that waits, or runs a command of busybox's shell."""
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app": name, **(labels or {})},
            "annotations": dict(annotations or {}),
        }
        template = self.template(command, cpu, scheduler, spec)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template}

    def template(
        self, command: str = "", cpu: str = "5m", scheduler: str = "stellwerk", more: Any = None
    ) -> JsonObject:
        """The spec of a pod with one container."""
        container: JsonObject = {
            "name": "main",
            "image": self.busybox if command else self.pause,
            "resources": {"requests": {"cpu": cpu, "memory": "8Mi"}},
        }
        if command:
            container["command"] = ["sh", "-c", command]
        spec = {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            **({"schedulerName": scheduler} if scheduler else {}),
        }
        return {**spec, **(more or {})}


def _marks(metadata: JsonObject) -> list[str]:
    """What can be left on an object: its name, and what is added to the objects of others."""
    return [
        metadata["name"],
        *(metadata.get("finalizers") or ()),
        *(metadata.get("annotations") or ()),
        *(metadata.get("labels") or ()),
    ]


def _written(objects: Sequence[JsonObject]) -> str:
    """A document for each object: the API server validates them, and of a List kubectl itself."""
    return "\n---\n".join(map(json.dumps, objects))


# --- installations --------------------------------------------------------------------------------


@dataclass
class Installation:
    """Stellwerk on the cluster, by manifests and the user's own kustomizations of them."""

    site: Site
    is_gone: bool = False

    def install(self) -> None:
        self._apply()
        self.rolled_out()

    def rolled_out(self) -> None:
        """Wait until the new replicas are ready, and one of them leads."""
        limit = f"--timeout={DEADLINE_SECONDS:.0f}s"
        self.site.run(
            *("rollout", "status", DEPLOYMENT, "-n", OPERATORS_NAMESPACE, limit),
            seconds=DEADLINE_SECONDS + 10,
        )

    def take_over(self) -> None:
        """Let the replicas stand by behind kube-scheduler, with the profile for its pods."""
        self._apply(_OVERLAY)
        self.rolled_out()
        self.site.run("apply", "-f", str(_DEFAULT_SCHEDULER))

    def give_back(self) -> None:
        """Stand beside kube-scheduler again, which has the lease by now."""
        self.site.run("delete", "-f", str(_DEFAULT_SCHEDULER), "--timeout=60s")
        self._apply()
        self.rolled_out()
        self.site.run("delete", "-f", str(_OVERLAY / "lease.yaml"))

    def uninstall(self) -> None:
        self.site.run(*("delete", "--ignore-not-found", "--timeout=120s", "-k", str(self._mine())))
        self.is_gone = True

    def _apply(self, *overlays: Path) -> None:
        self.site.run("apply", "-k", str(self._mine(*overlays)))

    def _mine(self, *overlays: Path) -> Path:
        """A kustomization that names the image and overlays, as an administrator keeps one."""
        folder = self.site.folder / "-".join(["mine", *(each.name for each in overlays)])
        folder.mkdir(exist_ok=True)
        image = image_fields(self.site.image)
        named = {"name": "stellwerk", "newName": image["name"]}
        named |= {"newTag": image["tag"]} if "tag" in image else {"digest": image["digest"]}
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(ROOT / "manifests", folder.resolve())],
            "components": [os.path.relpath(each, folder.resolve()) for each in overlays],
            "images": [named],
        }
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
        return folder


_OVERLAY: Final = ROOT / "manifests" / "overlays" / "in-place"
_DEFAULT_SCHEDULER: Final = ROOT / "manifests" / "profiles" / "optional" / "default-scheduler.yaml"


@dataclass
class Release(Installation):
    """Stellwerk on the cluster, as a release of Helm's."""

    @override
    def install(self) -> None:
        image = image_fields(self.site.image)
        values = [f"image.repository={image['name']}"]
        values.append(
            f"image.tag={image['tag']}" if "tag" in image else f"image.digest={image['digest']}"
        )
        self._helm("install", "--create-namespace", *(f"--set-string={each}" for each in values))
        self._helm("test")

    @override
    def take_over(self) -> None:
        self._helm("upgrade", "--reuse-values", "--set=takeOverDefaultScheduler=true")

    @override
    def give_back(self) -> None:
        # The replicas were scaled by kubectl, which Helm 4 would not overrule by itself.
        forced = [] if self._version().startswith("v3") else ["--force-conflicts"]
        beside = "--set=takeOverDefaultScheduler=false"
        self._helm("upgrade", "--reuse-values", beside, *forced)

    @override
    def uninstall(self) -> None:
        self._helm("uninstall", "--ignore-not-found")
        gone = ("--ignore-not-found", "--timeout=120s")
        self.site.run("delete", *gone, "-f", str(ROOT / "crds"))
        self.site.run("delete", *gone, "namespace", OPERATORS_NAMESPACE)
        self.is_gone = True

    def _version(self) -> str:
        command = [str(helm()), "version", "--template", "{{.Version}}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _helm(self, verb: str, *arguments: str) -> None:
        chart = [str(ROOT / "charts" / "stellwerk")] if verb in {"install", "upgrade"} else []
        waiting = [] if verb == "test" else ["--wait"]
        done = subprocess.run(
            [
                *(str(helm()), verb, "stellwerk", *chart, "--namespace", OPERATORS_NAMESPACE),
                *(*waiting, f"--timeout={DEADLINE_SECONDS:.0f}s", *arguments),
            ],
            env={**self.site.environment, "KUBECONFIG": str(self.site.kubectl.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"helm {verb}: {done.stderr}"


# --- the look at the cluster ----------------------------------------------------------------------


def open_site(folder: Path, environment: Mapping[str, str]) -> Site:
    """The cluster that the environment names.

    Raises:
        Refusal: it is not named, cannot be reached, or has something of Stellwerk's already.
    """
    given = environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    program = program_of(newest())
    programs = {"PATH": environment["PATH"], "HOME": environment.get("HOME", str(folder))}

    def view(*arguments: str) -> Done:
        source = Kubectl(program, Path.cwd(), Path(given), environment={**programs})
        return source.run("config", *arguments)

    contexts = view("get-contexts", "-o", "name")
    if contexts.code:
        raise Refusal(f"cannot use the kubeconfig {given}: {contexts.stderr.strip()}")
    current = view("current-context").stdout.strip()
    context = context_of(environment, contexts.stdout.split(), current)
    # A copy with this context alone: nothing can reach another cluster by it.
    copied = folder / "kubeconfig"
    copied.touch(mode=0o600)
    copied.write_text(view("view", "--raw", "--minify", "--flatten", f"--context={context}").stdout)
    kubectl = Kubectl(program, folder, copied, environment=programs)
    there = kubectl.run(
        *("get", "--ignore-not-found", "-o", "name", f"namespace/{OPERATORS_NAMESPACE}"),
        *(f"namespace/{NAMESPACE}", _DEFINITION),
    )
    if there.code:
        raise Refusal(f"the cluster of {context} does not answer: {there.stderr.strip()}")
    if there.stdout.strip():
        found = ", ".join(there.stdout.split())
        raise Refusal(
            f"the cluster of {context} has {found} already: the steps install and uninstall "
            "Stellwerk, and delete only what they have made"
        )
    nodes = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    runtimes = [node["status"]["nodeInfo"]["containerRuntimeVersion"] for node in nodes]
    is_hollow = any(each.startswith("hollow:") for each in runtimes)
    site = Site(kubectl, folder, environment["IMAGE"], is_hollow, environment)
    if not site.nodes():
        raise Refusal(f"the cluster of {context} has no node without taints")
    return replace(site, marks_before=site.marks())
