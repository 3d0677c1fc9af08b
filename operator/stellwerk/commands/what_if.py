"""`stellwerk what-if`: what would happen with other nodes, another pod, another profile.

The command line calls it. Invariant: the operator decides on a copy of what it knows, and nothing
in the cluster changes.
"""

import argparse
import asyncio
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from stellwerk.commands.port_arguments import (
    PortAddress,
    add_output_arguments,
    add_port_arguments,
    port_address,
)
from stellwerk.errors import ConfigurationError

HELP: Final = "say what would happen with other nodes, another pod or another profile"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is supposed."""
    parser.add_argument(
        "--pod", metavar="FILE|NAME", help="decide for this pod: a manifest, or a live pod"
    )
    parser.add_argument("-n", "--namespace", default="default", help="of a live pod")
    parser.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="a field of the pod, as spec.priority=1000; may be repeated",
    )
    parser.add_argument("--add-nodes", metavar="FILE", type=Path, help="Node manifests")
    parser.add_argument("--count", type=int, default=1, help="so many of each (default: 1)")
    parser.add_argument("--drain", metavar="NODE", default="", help="a node that is drained")
    parser.add_argument("--profile", metavar="FILE", type=Path, help="a SchedulerProfile")
    add_output_arguments(parser)
    add_port_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    body: dict[str, Any] = {"count": options.count}
    if options.pod:
        body["pod"] = _pod(options)
    elif options.set:
        raise ConfigurationError("--set changes the pod that --pod names")
    for assignment in options.set:
        set_field(body["pod"], assignment)
    if options.add_nodes is not None:
        body["addNodes"] = list(_manifests(options.add_nodes))
    if options.drain:
        body["drain"] = options.drain
    if options.profile is not None:
        body["profile"] = next(iter(_manifests(options.profile)), {})
    asyncio.run(_ask(port_address(options), body, options.output))
    return 0


async def _ask(address: PortAddress, body: dict[str, Any], form: str) -> None:
    from stellwerk.commands.operator_port import open_port  # noqa: PLC0415
    from stellwerk.commands.output import show  # noqa: PLC0415
    from stellwerk.commands.tables import print_what_if  # noqa: PLC0415

    async with open_port(address) as port:
        await show(lambda: port.post("/what-if", body), form, print_what_if)


def set_field(obj: dict[str, Any], assignment: str) -> None:
    """Set a field by its path; numbers, lists and objects are written as YAML.

    Raises:
        ConfigurationError: there is no such place in the object.
    """
    path, equals, text = assignment.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise ConfigurationError(f"--set {assignment}: expected PATH=VALUE")
    at: Any = obj
    try:
        for key in keys[:-1]:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        value = yaml.safe_load(text)
        if isinstance(at, list):
            at[int(keys[-1])] = value
        else:
            at[keys[-1]] = value
    except (AttributeError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"--set {assignment}: {error}") from error


def _pod(options: argparse.Namespace) -> dict[str, Any]:
    """A pod from a file, or a live one as kubectl gets it."""
    file = Path(options.pod)
    if file.is_file():
        return next(iter(_manifests(file)), {})
    command = ["kubectl", "get", "pod", options.pod, "-n", options.namespace, "-o", "json"]
    command += [f"--kubeconfig={options.kubeconfig}"] if options.kubeconfig else []
    command += [f"--context={options.context}"] if options.context else []
    try:
        got = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 no shell, and arguments of the user's own
    except OSError as error:
        message = f"--pod {options.pod}: no such file, and no kubectl to ask for a live pod"
        raise ConfigurationError(message) from error
    if got.returncode:
        raise ConfigurationError(f"--pod {options.pod}: {got.stderr.decode().strip()}")
    pod: dict[str, Any] = yaml.safe_load(got.stdout)
    return pod


def _manifests(file: Path) -> list[dict[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    found = [document for document in documents if isinstance(document, dict)]
    return [
        item
        for document in found
        for item in (document["items"] if isinstance(document.get("items"), list) else [document])
    ]
