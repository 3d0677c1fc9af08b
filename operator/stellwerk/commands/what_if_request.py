"""The question that `stellwerk what-if` asks: its options, files and live pods as one JSON object.

`stellwerk what-if` calls it. Invariant: nothing is asked of the operator before all of it is read.
"""

import argparse
import subprocess
from pathlib import Path
from typing import Any

import yaml

from stellwerk.commands.port_arguments import split_name
from stellwerk.errors import ConfigurationError
from stellwerk.models.yaml_file import read_yaml


def what_if_request(options: argparse.Namespace) -> dict[str, Any]:
    """The body of the request.

    Raises:
        ConfigurationError: a file or the live pod cannot be read, or --set has no place.
    """
    body: dict[str, Any] = {"count": options.count}
    if options.pod:
        body["pod"] = _pod(options)
    elif options.set:
        raise ConfigurationError("--set changes the pod that --pod names")
    for assignment in options.set:
        set_field(body["pod"], assignment)
    if options.add_nodes is not None:
        body["addNodes"] = _manifests(options.add_nodes)
    if options.drain:
        body["drain"] = options.drain
    if options.profile is not None:
        body["profile"] = next(iter(_manifests(options.profile)), {})
    return body


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
    except (
        AttributeError,
        IndexError,
        TypeError,
        ValueError,
        RecursionError,
        yaml.YAMLError,
    ) as error:
        raise ConfigurationError(f"--set {assignment}: {error}") from error


def _pod(options: argparse.Namespace) -> dict[str, Any]:
    """A pod from a file, or a live one as kubectl gets it."""
    file = Path(options.pod)
    if file.is_file():
        return next(iter(_manifests(file)), {})
    namespace, name = split_name(options, options.pod.removeprefix("pod/"))
    command = ["kubectl", "get", "pod", name, "-n", namespace, "-o", "json"]
    command += [f"--kubeconfig={options.kubeconfig}"] if options.kubeconfig else []
    command += [f"--context={options.context}"] if options.context else []
    try:
        got = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 no shell, and arguments of the user's own
    except OSError as error:
        message = f"--pod {options.pod}: no such file, and no kubectl to ask for a live pod"
        raise ConfigurationError(message) from error
    if got.returncode:
        # kubectl logs its retries before the line that says what is wrong.
        said = got.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"kubectl ended with {got.returncode}"
        raise ConfigurationError(f"--pod {options.pod}: {reason}")
    pod: dict[str, Any] = yaml.safe_load(got.stdout)
    return pod


def _manifests(file: Path) -> list[dict[str, Any]]:
    found = [document for document in read_yaml(file) if isinstance(document, dict)]
    return [
        item
        for document in found
        for item in (document["items"] if isinstance(document.get("items"), list) else [document])
    ]
