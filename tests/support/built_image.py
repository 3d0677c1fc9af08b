"""The image, built without a registry and run without a daemon, for the tests under `image/`.

debootstrap makes a base of Debian, buildah builds the Dockerfile from it, and runc runs the result
as a kubelet would run the Deployment's container: with the users, rights and mounts that the
manifest names. Invariant: what this machine's pip needs to find packages is mounted for the build
alone, and no image or mount of a test stays.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import whole_units
from tests.support.repository import ROOT

SUITE: Final = "bookworm"
BASE: Final = "localhost/stellwerk-test-base"
IMAGE: Final = "localhost/stellwerk-test"
PACKAGES: Final = "python3,python3-pip,python3-venv,ca-certificates"
BASE_VARIABLE: Final = "STELLWERK_IMAGE_BASE"
"""Names an image that is there already and takes the place of the base that debootstrap makes."""
IMAGE_VARIABLE: Final = "STELLWERK_IMAGE"
"""Names an image that was built already, by buildah from this Dockerfile, and takes its place."""
ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_MANIFEST: Final = ROOT / "manifests" / "20-deployment.yaml"
_ATTEMPTS: Final = 3
"""Runs of debootstrap: a mirror may not answer in the first seconds."""


def told(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program; returns what it prints.

    Raises:
        AssertionError: it failed, with what it wrote.
    """
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout.strip()


# --- building -------------------------------------------------------------------------------------


@contextmanager
def base_image(directory: Path) -> Iterator[str]:
    """A base with Python and pip, as the official one has them, but under /usr."""
    if given := os.environ.get(BASE_VARIABLE):
        yield given
        return
    folder = directory / "debian"
    command = ("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, folder)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            told(*command)
            break
        except AssertionError:
            if attempt == _ATTEMPTS:
                raise
            shutil.rmtree(folder, ignore_errors=True)
    (folder / "usr/bin/python").symlink_to("python3")
    container = told("buildah", "from", "scratch")
    try:
        told("buildah", "add", "--quiet", container, folder, "/")
        told("buildah", "commit", "--quiet", container, BASE)
    finally:
        told("buildah", "rm", container)
    shutil.rmtree(folder)
    try:
        yield BASE
    finally:
        told("buildah", "rmi", "--force", BASE)


@contextmanager
def built(base: str, directory: Path, context: Path = ROOT, tag: str = IMAGE) -> Iterator[str]:
    """An image of the Dockerfile in a folder."""
    if tag == IMAGE and (given := os.environ.get(IMAGE_VARIABLE)):
        yield given
        return
    arguments = ("--isolation", "chroot", "--pull-never", "--layers=false")
    told(
        "buildah",
        "build",
        *arguments,
        "--build-arg",
        f"BASE={base}",
        *pip_mounts(directory),
        "--tag",
        tag,
        context,
    )
    try:
        yield tag
    finally:
        told("buildah", "rmi", "--force", tag)


def pip_mounts(directory: Path) -> list[str]:
    """The options that give a build this machine's pip configuration, with the files it names."""
    lines = told(sys.executable, "-m", "pip", "config", "list").splitlines()
    settings = {}
    for line in lines:
        key, _, value = line.partition("=")
        settings[key.rpartition(".")[2]] = value.strip("'\"")
    mounts = {}
    if certificates := settings.pop("cert", ""):
        # Not at its own place: what lies there becomes part of the image.
        settings["cert"] = "/run/pip-authorities.pem"
        mounts["/run/pip-authorities.pem"] = certificates
    for key, value in settings.items():
        for word in value.split() if key != "cert" else ():
            # An index in files links to files beside itself.
            named = Path(word.removeprefix("file://")).absolute()
            place = named.parent if word.startswith("file://") else named
            if word.startswith(("file://", "/")) and named.exists():
                mounts[str(place)] = str(place)
    file = directory / "pip.conf"
    texts = [f"{key} = {value}" for key, value in settings.items()]
    file.write_text("\n".join(["[global]", *texts, ""]))
    mounts["/etc/pip.conf"] = str(file)
    return [f"--volume={source}:{target}:ro" for target, source in mounts.items()]


@contextmanager
def mounted(image: str) -> Iterator[Path]:
    """The root file system of an image, in a layer of its own."""
    container = told("buildah", "from", "--pull-never", image)
    try:
        yield Path(told("buildah", "mount", container))
    finally:
        told("buildah", "rm", container)


def config_of(image: str) -> JsonObject:
    """What an image says of its user, environment and entry point."""
    found: JsonObject = json.loads(told("buildah", "inspect", "--type", "image", image))
    return dict(found["OCIv1"]["config"])


# --- running --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pod:
    """The Deployment's pod template, as far as a runtime needs it."""

    spec: JsonObject

    @classmethod
    def of_manifest(cls) -> "Pod":
        (deployment,) = yaml.safe_load_all(_MANIFEST.read_text(encoding="utf-8"))
        return cls(deployment["spec"]["template"]["spec"])

    @property
    def container(self) -> JsonObject:
        (found,) = self.spec["containers"]
        return dict(found)

    def security(self, key: str) -> Any:
        """A field of the security context: of the container, else of the pod."""
        own = self.container.get("securityContext", {})
        return own.get(key, self.spec.get("securityContext", {}).get(key))


@dataclass
class Running:
    """A container that runc runs."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    seconds_to_end: float = field(default=0.0, init=False)

    def end(self) -> int:
        """Send SIGTERM, and wait; returns the exit status."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        self.seconds_to_end = time.monotonic() - began
        return status

    def check_alive(self) -> None:
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8", errors="replace")

    def cpu_seconds(self) -> float:
        """CPU time since the start: of the first process and those that it has waited for."""
        process = json.loads(told("runc", "state", self.name))["pid"]
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def container(
    image: str,
    root: Path,
    directory: Path,
    arguments: Sequence[str],
    *,
    pod: Pod | None = None,
    environment: Mapping[str, str] | None = None,
    mounts: Mapping[str, Path] | None = None,
    entrypoint: Sequence[str] | None = None,
) -> Iterator[Running]:
    """A container of an image, with the security context of the Deployment.

    Its network is that of the machine. `mounts`: files and folders by their places, read-only.
    """
    pod, config = pod or Pod.of_manifest(), config_of(image)
    directory.mkdir()
    command = [*(entrypoint or config["Entrypoint"]), *arguments]
    fields = {"metadata.namespace": "stellwerk", "metadata.name": f"stellwerk-{directory.name}"}
    variables = [
        f"{each['name']}="
        + (each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]])
        for each in pod.container.get("env", ())
    ]
    given = [f"{name}={value}" for name, value in (environment or {}).items()]
    specification = _specification(pod, config, root)
    specification["process"] |= {"args": command, "env": [*config["Env"], *variables, *given]}
    specification["mounts"] += [
        {
            "destination": place,
            "source": str(source),
            "type": "bind",
            "options": ["bind", "ro", "nosuid", "nodev"],
        }
        for place, source in (mounts or {}).items()
    ]
    (directory / "config.json").write_text(json.dumps(specification))
    name = f"stellwerk-{os.getpid()}-{time.monotonic_ns()}"
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["runc", "run", "--bundle", directory, name], stdout=output, stderr=output
        )
    running = Running(name, process, log)
    try:
        yield running
    finally:
        if process.poll() is None:
            running.end()
        subprocess.run(["runc", "delete", "--force", name], capture_output=True, check=False)


def _specification(pod: Pod, config: JsonObject, root: Path) -> JsonObject:
    """What `runc spec` proposes, with what the manifest says in its place.

    As a kubelet does it: the user may come from the image, the group only from the manifest.
    """
    folder = root.parent / "spec"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").unlink(missing_ok=True)
    told("runc", "spec", cwd=folder)
    found: JsonObject = json.loads((folder / "config.json").read_text())
    user = pod.security("runAsUser")
    capabilities = pod.security("capabilities") or {}
    process: JsonObject = found["process"]
    process |= {
        "terminal": False,
        "user": {
            "uid": int(config["User"].partition(":")[0]) if user is None else user,
            "gid": pod.security("runAsGroup") or 0,
        },
        "noNewPrivileges": pod.security("allowPrivilegeEscalation") is False,
        "cwd": config.get("WorkingDir") or "/",
        "rlimits": [],
    }
    if "ALL" in capabilities.get("drop", ()):
        process["capabilities"] = {}
    found["root"] = {"path": str(root), "readonly": bool(pod.security("readOnlyRootFilesystem"))}
    namespaces = found["linux"]["namespaces"]
    found["linux"]["namespaces"] = [each for each in namespaces if each["type"] != "network"]
    found["mounts"] = [each for each in found["mounts"] if each["destination"] != "/sys"]
    volumes = {each["name"]: each.get("emptyDir") for each in pod.spec.get("volumes", ())}
    for mount in pod.container.get("volumeMounts", ()):
        size = whole_units(str(volumes[mount["name"]]["sizeLimit"]))
        options = ["nosuid", "nodev", "mode=1777", f"size={size}"]
        place = {"destination": mount["mountPath"], "type": "tmpfs", "source": "tmpfs"}
        found["mounts"].append({**place, "options": options})
    return found
