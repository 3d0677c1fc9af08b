"""The question that `stellwerk what-if` asks: its options, files and live pods as one JSON object.

`stellwerk what-if` calls it. Invariant: nothing is asked of the operator before all of it is read.
"""

import argparse
import asyncio
import contextlib
import re
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from stellwerk.answers.what_if import MAX_TEMPLATE_PODS
from stellwerk.client.kubernetes import pod_path
from stellwerk.models.act_syntax import (
    read_acts,
    read_deletion,
    read_relabelling,
    read_scaling,
    read_tainting,
)
from stellwerk.models.number_options import WholeNumber, shortened
from stellwerk_cli.commands.cluster_client import with_client
from stellwerk_cli.commands.manifests import ManifestPods, read_manifests, read_pods
from stellwerk_cli.commands.port_arguments import namespace_of, split_name
from stellwerk_kube.errors import AbsentError, ConfigurationError, NotFound
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.yaml_file import parse_yaml
from stellwerk_simulation.manifest_reader import check_fields

if TYPE_CHECKING:
    from stellwerk.client.kubernetes import KubernetesClient

_POD: Final = "pod/"
"""The prefix of a live pod's name, as kubectl prints it."""
_FILES: Final = (".yaml", ".yml", ".json")
"""The endings of names that stand for files, unless they have the prefix of a pod."""
_STEP: Final = re.compile(
    r"""
    (?:^|\.) (?P<name> (?: \\. | [^.\[\]\\] )+ )   # .field, in which \\. is a dot of the name
    | \[ (?P<index> [0-9]{1,6} ) \]                  # [0]
    | \[ ' (?P<key> [^']+ ) ' \]                     # ['a key with dots']
    """,
    re.VERBOSE,
)


def what_if_request(options: argparse.Namespace) -> dict[str, Any]:
    """The body of the request.

    Raises:
        ConfigurationError: a file or the live pod cannot be read, or --set has no place.
    """
    body: dict[str, Any] = {"count": options.count}
    pods = [pod for name in options.pod for pod in _pods(options, name)]
    if options.set and not pods:
        raise ConfigurationError("--set changes the pod that --pod names")
    for each in pods:
        for assignment in options.set:
            set_field(each.pod, assignment)
        if options.set:
            check_fields("--set", each.pod)
    body |= _body_of(pods)
    if options.add_nodes:
        body["addNodes"] = [
            node
            for file in options.add_nodes
            for node in read_manifests("--add-nodes", file, ["Node"])
        ]
    if options.drain:
        body["drain"] = options.drain[0] if len(options.drain) == 1 else options.drain
    body |= _acts(options)
    if options.profile is not None:
        body["profile"] = _profile(str(options.profile))
    return body


def _body_of(pods: Sequence[ManifestPods]) -> dict[str, Any]:
    """The pods as fields of the question: one is explained, controllers' are counted.

    Raises:
        ConfigurationError: they are too many.
    """
    total = sum(each.pods for each in pods)
    if total == 1:
        return {"pod": next(each.only for each in pods if each.pods)}
    templates = [each for each in pods if each.controller is not None or each.count is not None]
    templated = sum(each.pods for each in templates)
    if templated > MAX_TEMPLATE_PODS:
        raise ConfigurationError(
            f"--pod: {templated:,} pods; one answer covers at most {MAX_TEMPLATE_PODS:,}"
        )
    found: dict[str, Any] = {}
    alone = [each.pod for each in pods if each.controller is None and each.count is None]
    if alone:
        found["pods"] = alone
    if templates:
        found["templates"] = [each.template for each in templates]
    return found


def _acts(options: argparse.Namespace) -> dict[str, list[str]]:
    """The acts, read before anything is asked, each with the namespace of its object."""
    namespace = ""
    if any(text.count("/") == 1 for text in (*options.delete, *options.scale)):
        namespace = namespace_of(options)
    found: dict[str, list[str]] = {}
    for name, read, identity, texts in (
        ("relabel", read_relabelling, attrgetter("node"), map(" ".join, options.relabel)),
        ("taint", read_tainting, attrgetter("node"), map(" ".join, options.taint)),
        ("delete", partial(read_deletion, namespace=namespace), str, options.delete),
        (
            "scale",
            partial(read_scaling, namespace=namespace),
            attrgetter("workload"),
            options.scale,
        ),
    ):
        acts = read_acts(f"--{name}", list(texts), read, identity)
        if acts:
            found[name] = [f"{act}" for act in acts]
    return found


def _profile(file: str) -> JsonObject:
    profiles = read_manifests("--profile", file, ["SchedulerProfile"])
    if len(profiles) > 1:
        raise ConfigurationError(f"--profile {file}: {len(profiles)} of them, one is expected")
    return profiles[0]


def set_field(obj: dict[str, Any], assignment: str) -> None:
    """Set a field by its path, as kubectl writes paths; values are written as YAML.

    A pod that names another priority class has that one's priority, unless it is set, too.

    Raises:
        ConfigurationError: there is no such field in the object.
    """
    path, equals, text = assignment.partition("=")
    keys = _keys(path)
    if not equals or not keys:
        raise ConfigurationError(
            f"--set {assignment}: expected PATH=VALUE, as spec.containers[0].image=nginx or "
            r"metadata.labels.example\.com/tier=web"
        )
    at: Any = obj
    try:
        for key in keys[:-1]:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        documents = parse_yaml(text)
        value = documents[0] if documents else None
        if isinstance(at, list):
            at[int(keys[-1])] = value
        elif isinstance(at, dict):
            at[keys[-1]] = value
        else:
            raise ConfigurationError(f"--set {assignment}: {'.'.join(keys[:-1])} has no fields")
    except yaml.YAMLError as error:
        found = " ".join(str(error).split())
        raise ConfigurationError(f"--set {assignment}: not YAML: {found}") from error
    except (AttributeError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"--set {assignment}: there is no such field") from error
    if keys == ["spec", "priorityClassName"]:
        for derived in ("priority", "preemptionPolicy"):
            obj["spec"].pop(derived, None)


def _keys(path: str) -> list[str]:
    """The steps of a path; empty: it is none."""
    keys, end = [], 0
    while end < len(path):
        step = _STEP.match(path, end)
        if step is None:
            return []
        name = step["name"]
        keys.append(re.sub(r"\\(.)", r"\1", name) if name else step["index"] or step["key"])
        end = step.end()
    return keys


def _pods(options: argparse.Namespace, name: str) -> list[ManifestPods]:
    """The pods of a file's manifests, or a live one."""
    count: int | None = None
    if not _is_file(name) and "=" in name:
        name, _, text = name.rpartition("=")
        try:
            count = WholeNumber(1, MAX_TEMPLATE_PODS)(text)
        except argparse.ArgumentTypeError as error:
            raise ConfigurationError(f"--pod {name}={shortened(text)}: {error}") from error
    if _is_file(name):
        return read_pods("--pod", name, namespace_of(options), count)
    return [ManifestPods(_live_pod(options, name), None, count)]


def _is_file(name: str) -> bool:
    try:
        return name == "-" or Path(name).is_file()
    except OSError:
        return False  # No file has a name of this length.


def _live_pod(options: argparse.Namespace, name: str) -> JsonObject:
    if name.endswith(_FILES) and not name.startswith(_POD):
        raise ConfigurationError(f"--pod {name}: no such file")
    namespace, pod_name = split_name(options, name.removeprefix(_POD))
    no_file = "no such file"
    with contextlib.suppress(OSError):  # no file has a name of this length
        if Path(name).is_dir():
            no_file = "this is a directory: name its files"

    async def read(client: "KubernetesClient") -> JsonObject:
        try:
            return await client.get(pod_path(namespace, pod_name))
        except NotFound as error:
            said = f"there is no pod {namespace}/{pod_name}, and {no_file}"
            raise AbsentError(f"--pod {name}: {said}") from error

    return asyncio.run(with_client(options.kubeconfig, options.context, read))
