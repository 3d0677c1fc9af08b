"""The flags of `stellwerk cluster` about nodes, and the commands that make nodes and pods fail.

Read by the command line. Invariant: a running cluster is changed through its API alone, by
annotations that the hollow kubelets and their heartbeats follow.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from stellwerk.errors import ConfigurationError, SchedulerError

if TYPE_CHECKING:
    import argparse

_MACHINE: Final = "stellwerk.dev/machine"
_END_NOW: Final = "stellwerk.dev/end-now"
_STATES: Final = {"fail": "failed", "cut-off": "cut-off", "restore": None}
_TEXTS: Final = {
    "fail": "switch the machine of a node off: its lease runs out, its containers are lost",
    "cut-off": "cut a node off: its lease runs out, its containers run on",
    "restore": "let a node that failed or was cut off be heard of again",
}
_SECONDS: Final = 10.0
_EXIT_CODES: Final = 256


def add_node_flags(parser: argparse.ArgumentParser) -> None:
    """Flags about nodes, and the commands `fail`, `cut-off`, `restore` and `pod`."""
    parser.add_argument(
        "--nodes",
        default="3",
        metavar="N|FILE",
        help="how many hollow nodes, or a file with node manifests (default: 3)",
    )
    parser.add_argument(
        "--stages",
        metavar="FILE",
        type=Path,
        help="how pods live and end (docs/hollow-nodes.md)",
    )
    parser.add_argument(
        "--kubelet-config",
        metavar="FILE",
        type=Path,
        help="a KubeletConfiguration: eviction thresholds and what is reserved, of all nodes",
    )
    commands = parser.add_subparsers(title="commands on a running cluster", metavar="COMMAND")
    for name, text in _TEXTS.items():
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.add_argument("node", help="name of the node")
        command.set_defaults(command=_change_machine, incident=name)
    pod = commands.add_parser("pod", help="let the containers of a running pod end")
    pod.add_argument("pod", help="name of the pod")
    pod.add_argument("-n", "--namespace", default="default", help="(default: %(default)s)")
    pod.add_argument("--exit-code", type=int, default=1, help="(default: %(default)s)")
    pod.set_defaults(command=_end_pod)


def _change_machine(options: argparse.Namespace) -> int:
    state = _STATES[options.incident]
    _annotate(options.kubeconfig, f"/api/v1/nodes/{options.node}", _MACHINE, state)
    print(f"node/{options.node}: {state or 'heard of again'}")
    return 0


def _end_pod(options: argparse.Namespace) -> int:
    if not 0 <= options.exit_code < _EXIT_CODES:
        raise ConfigurationError(f"--exit-code {options.exit_code}: not between 0 and 255")
    path = f"/api/v1/namespaces/{options.namespace}/pods/{options.pod}"
    _annotate(options.kubeconfig, path, _END_NOW, str(options.exit_code))
    print(f"pod/{options.pod}: its containers end with exit code {options.exit_code}")
    return 0


def _annotate(kubeconfig: Path, path: str, key: str, value: str | None) -> None:
    """Patch one annotation.

    Raises:
        ConfigurationError: the kubeconfig leads nowhere.
        SchedulerError: the cluster refuses.
    """
    url, token, context = _access(kubeconfig)
    body = json.dumps({"metadata": {"annotations": {key: value}}}).encode()
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/merge-patch+json",
    }
    request = urllib.request.Request(  # noqa: S310  (the scheme is checked)
        f"{url}{path}", data=body, headers=headers, method="PATCH"
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS, context=context):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        message = _message(error)
        raise SchedulerError(f"cannot change {path}: {message}") from error
    except OSError as error:
        raise ConfigurationError(f"{kubeconfig}: no cluster answers at {url}: {error}") from error


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read()).get("message", error.reason))
    except ValueError:
        return str(error.reason)


def _access(kubeconfig: Path) -> tuple[str, str, ssl.SSLContext | None]:
    """URL, token and trust of the kubeconfig that `stellwerk cluster` wrote."""
    try:
        content: Any = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster = content["clusters"][0]["cluster"]
        url, token = cluster["server"], content["users"][0]["user"]["token"]
    except OSError as error:
        text = (
            f"{kubeconfig}: {error.strerror}; is the cluster running? --kubeconfig names its file"
        )
        raise ConfigurationError(text) from error
    except (yaml.YAMLError, LookupError, TypeError) as error:
        raise ConfigurationError(f"{kubeconfig}: no kubeconfig of this command") from error
    if not str(url).startswith(("http://", "https://")):
        raise ConfigurationError(f"{kubeconfig}: {url} is no URL of a cluster")
    authority = cluster.get("certificate-authority-data")
    if not authority:
        return url, token, None
    pem = base64.b64decode(authority).decode("ascii")
    return url, token, ssl.create_default_context(cadata=pem)
