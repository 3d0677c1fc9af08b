"""A what-if form as the question to the operator.

The page's what-if view reads forms with it. Invariant: a text of any size within the limit takes
little time and memory to read: aliases, which can make a small text large, are refused, and so is
what is nested deeply.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
import yaml

from stellwerk.answers.what_if import MAX_TEMPLATE_PODS
from stellwerk.profiles.spec.profile import API_VERSION, KIND
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.pod_templates import POD
from stellwerk_kube.yaml_file import NestedTooDeeply, check_depth, parse_yaml

MAX_FORM_BYTES: Final = 256 << 10
"""Bytes of a whole form, its manifests included."""
_MAX_DEPTH: Final = 50
"""Levels of nesting in a manifest of a form. A pod needs about a dozen."""
_MAX_SUPPOSED_OBJECTS: Final = 1000
"""Objects of one kind that a supposition adds: each is decided on."""
_MAX_WEIGHT: Final = 100
"""Weight of a plugin, as a SchedulerProfile takes it."""
_COUNT: Final = re.compile("[1-9][0-9]{0,4}")
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

ACTS: Final = ("relabel", "taint", "delete", "scale")
"""Fields with one act a line, written as for the command."""
FIELDS: Final = ("pod", "copies", "nodes", "count", "drain", "profile", *ACTS)


def supposition(form: Mapping[str, str]) -> dict[str, Any]:
    """The body for /what-if.

    Raises:
        ConfigurationError: a field cannot be read; the message begins with its name.
    """
    body: dict[str, Any] = {}
    pods, profiles = _manifests("pod", form), _manifests("profile", form)
    nodes = _manifests("nodes", form)
    if len(profiles) > 1:
        raise ConfigurationError(f"profile: one object is expected, there are {len(profiles)}")
    if profiles:
        body["profile"] = profiles[0]
    copies = _number("copies", form, MAX_TEMPLATE_PODS) if form.get("copies", "").strip() else None
    if len(pods) == 1 and copies in {None, 1} and pods[0].get("kind", POD) == POD:
        body["pod"] = pods[0]
    elif pods:
        more = {} if copies is None else {"count": copies}
        body["templates"] = [{"template": each, **more} for each in pods]
    if nodes:
        body["addNodes"] = nodes
        body["count"] = _number("count", form, _MAX_SUPPOSED_OBJECTS)
    if form.get("drain", "").strip():
        body["drain"] = form["drain"].strip()
    for name in ACTS:
        lines = acts_of(form, name)
        if lines:
            body[name] = lines
    if not body:
        raise ConfigurationError("nothing to decide yet: fill in one of the fields")
    return _as_json(body)


def acts_of(form: Mapping[str, str], name: str) -> list[str]:
    """The acts of a field, one from each line that is not empty."""
    return [line.strip() for line in form.get(name, "").splitlines() if line.strip()]


def with_weights(spec: JsonObject, name: str, wanted: Mapping[str, str]) -> dict[str, Any]:
    """The profile of a spec with other weights, which are written as numbers, by Score plugin.

    Raises:
        ConfigurationError: a weight is no number from 1 to 100, or none is named.
    """
    weights = dict(spec.get("weights") or {})
    for plugin, text in wanted.items():
        if not (_COUNT.fullmatch(text.strip()) and int(text) <= _MAX_WEIGHT):
            raise ConfigurationError(f"{plugin}: a weight is a number from 1 to {_MAX_WEIGHT}")
        weights[plugin] = int(text)
    if not wanted:
        raise ConfigurationError("no weight was changed")
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {**spec, "weights": weights},
    }


def as_shadow(profile: JsonObject) -> str:
    """A manifest of the same profile beside itself, which decides nothing, as YAML."""
    name = profile["metadata"]["name"]
    left_out = {"schedulerName", "mode", "allowBeside", "selector", "namespaces"}
    spec = {key: value for key, value in profile["spec"].items() if key not in left_out}
    shadow = {
        **profile,
        "metadata": {"name": f"{name[:248]}-next"},
        "spec": {"shadowOf": name, **spec},
    }
    return as_yaml(shadow)


def as_yaml(obj: JsonObject) -> str:
    """An object as a manifest has it."""
    text: str = yaml.safe_dump(obj, sort_keys=False, default_flow_style=False)
    return text


def _as_json(body: dict[str, Any]) -> dict[str, Any]:
    """Refuse what YAML can say and JSON cannot; dates become texts."""
    try:
        result: dict[str, Any] = orjson.loads(orjson.dumps(body))
    except TypeError as error:
        raise ConfigurationError(
            f"a manifest has a value that JSON cannot hold: {error}"
        ) from error
    return result


def _number(name: str, form: Mapping[str, str], most: int) -> int:
    """A field that says how many; 1 if it is empty."""
    text = form.get(name, "").strip() or "1"
    if not (_COUNT.fullmatch(text) and int(text) <= most):
        raise ConfigurationError(f"{name}: a number from 1 to {most} is expected")
    return int(text)


def _manifests(name: str, form: Mapping[str, str]) -> list[dict[str, Any]]:
    """The objects of a field, lists of kubectl taken apart."""
    text = form.get(name, "")
    if not text.strip():
        return []
    try:
        _check(name, text)
        found_documents = parse_yaml(text, _MAX_DEPTH, is_fast=True)
        documents = [each for each in found_documents if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{name}: not YAML: {_in_words(error)}") from error
    found: list[dict[str, Any]] = []
    for document in documents:
        items = document.get("items") if isinstance(document, dict) else None
        found += items if isinstance(items, list) else [document]
    if not all(isinstance(each, dict) for each in found):
        raise ConfigurationError(f"{name}: a manifest is expected, with apiVersion and kind")
    return found


def _in_words(error: Exception) -> str:
    """The error and its place, in one line."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if isinstance(error, yaml.MarkedYAMLError) and mark is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def _check(name: str, text: str) -> None:
    """Refuse what grows when it is read."""
    try:
        check_depth(text.encode("utf-8", "surrogatepass"), _MAX_DEPTH)
    except NestedTooDeeply as error:
        raise ConfigurationError(f"{name}: {error}") from error
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ConfigurationError(f"{name}: aliases (*{event.anchor}) are not read here")
