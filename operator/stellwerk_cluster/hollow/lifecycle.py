"""Lifecycles of hollow pods: how long each step takes, how it ends, what it uses at which hour.

The hollow kubelet asks for the `Lifecycle` of each pod. A file of stages (`--stages`) has a list;
the first stage that matches a pod holds for it, and annotations of the pod come before it. Node
pressure and the metrics API ask for the usage at this hour (`usage_at`). Invariant: an annotation
that cannot be read counts as not given; the steps of a load profile are in order, and no two begin
at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, controller_of, labels_of, meta
from stellwerk_kube.declared_usage import at_load, parse_load, parse_usage
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from stellwerk_kube.json_values import JsonObject


PREFIX: Final = "stellwerk.dev/"
USAGE_ANNOTATION: Final = f"{PREFIX}usage"
"""The amounts that a pod uses, as the metrics of its node show them."""
END_NOW_ANNOTATION: Final = f"{PREFIX}end-now"
"""An exit code: the containers that run end with it, once; the kubelet takes the annotation off."""
OOM_KILLED: Final = "OOMKilled"
"""In place of an exit code: the kernel has killed them for want of memory."""
_MAX_SECONDS: Final = 1e9
"""Longest time that an annotation may give: 30 years."""
JOB_RUN_SECONDS: Final = 10.0
"""Time that pods of Jobs run if no other is given; other pods run without end."""
STDIN_RUN_SECONDS: Final = 2.0
"""Time that pods run which read what is typed (`stdinOnce`), as `kubectl run -i` makes them."""
_EXIT_CODES: Final = range(256)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The steps of one pod's life."""

    start_seconds: float = 0.5
    """From binding to the start of its first container, sandbox and images: without init
    containers this is the time to Running, with them each adds `init_seconds`."""
    init_seconds: float = 0.5
    """Time that each init container runs, those that are no sidecars."""
    ready_seconds: float = 0.0
    """From the start of the containers to Ready."""
    run_seconds: float | None = None
    """Time that the containers run before they end by themselves; None: without end."""
    stop_seconds: float = 0.5
    """From the signal to stop to the end of the containers, at most the grace period."""
    exit_code: int = 0
    """The exit code of containers that end by themselves."""
    init_exit_code: int = 0
    """The exit code of init containers."""
    usage: str = ""
    """The pod's usage, as in the annotation of that name: `cpu=100m,memory=64Mi,…`."""
    load: str = ""
    """The share of it by time of day, UTC: `08:00=100%,20:00=30%`; empty: all of it."""


_FIELDS: Final = {field.name.replace("_", "-"): field.name for field in fields(Lifecycle)}


_CAMEL: Final = {
    dashed.split("-")[0] + "".join(part.title() for part in dashed.split("-")[1:]): name
    for dashed, name in _FIELDS.items()
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a file: a selector of pods, and the fields of their lifecycle."""

    namespace: str
    """Empty: of all namespaces."""
    owner: str
    """The kind of the controller; empty: any."""
    labels: tuple[tuple[str, str], ...]
    values: dict[str, Any]

    def matches(self, pod: JsonObject) -> bool:
        """Whether it holds for a pod."""
        if self.namespace and meta(pod).get("namespace") != self.namespace:
            return False
        if self.owner and (controller_of(pod) or EMPTY).get("kind") != self.owner:
            return False
        labels = labels_of(pod)
        return all(labels.get(key) == value for key, value in self.labels)


class Lifecycles:
    """The lifecycle of every pod."""

    def __init__(self, default: Lifecycle | None = None, stages: Iterable[Stage] = ()) -> None:
        """Stages in order; `default` for what neither they nor annotations say."""
        self._default = default or Lifecycle()
        self._stages = tuple(stages)

    def of(self, pod: JsonObject) -> Lifecycle:
        """The lifecycle of this pod."""
        values: dict[str, Any] = {}
        if (controller_of(pod) or EMPTY).get("kind") == "Job":
            values["run_seconds"] = JOB_RUN_SECONDS
        elif any(each.get("stdinOnce") for each in pod["spec"]["containers"]):
            # `kubectl run -i`: there is no input here, and a shell ends with its input.
            values["run_seconds"] = STDIN_RUN_SECONDS
        for container in pod["spec"]["containers"]:
            delay = (container.get("readinessProbe") or EMPTY).get("initialDelaySeconds", 0)
            values["ready_seconds"] = max(values.get("ready_seconds", 0.0), float(delay))
        for stage in self._stages:
            if stage.matches(pod):
                values |= stage.values
                break
        values |= _of_annotations(meta(pod).get("annotations") or EMPTY)
        if not values.get("ready_seconds", 1):
            del values["ready_seconds"]
        return replace(self._default, **values) if values else self._default


def _of_annotations(annotations: JsonObject) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, text in annotations.items():
        name = _FIELDS.get(key.removeprefix(PREFIX)) if key.startswith(PREFIX) else None
        if name is None:
            continue
        try:
            found[name] = _value(name, text)
        except ValueError:
            continue  # a pod of a tenant's: the kubelet goes on as if it were not there
    return found


def _value(name: str, given: Any) -> Any:  # noqa: ANN401  (of a YAML file)
    """A value of the field, checked.

    Raises:
        ValueError: it cannot be one.
    """
    if name == "load":
        parse_load(str(given))
    if name in {"usage", "load"}:
        return str(given)
    if isinstance(given, bool) or given is None:
        raise ValueError("not a number")
    if name.endswith("code"):
        code = int(given)
        if code not in _EXIT_CODES:
            raise ValueError("not between 0 and 255")
        return code
    seconds = float(given)
    if not 0 <= seconds <= _MAX_SECONDS:
        raise ValueError(f"not between 0 and {_MAX_SECONDS:.0f}")
    return seconds


def parse_stages(document: object, file: str) -> list[Stage]:
    """The stages of a file's content: `{stages: [{match: {…}, startSeconds: 3, …}]}`.

    Raises:
        ConfigurationError: the content is none, or a field is unknown or wrong.
    """
    stages = document.get("stages") if isinstance(document, dict) else None
    if not isinstance(stages, list):
        raise ConfigurationError(f"--stages {file}: expected a list under `stages`")
    return [_stage(each, f"--stages {file}: stages[{place}]") for place, each in enumerate(stages)]


def _stage(given: object, where: str) -> Stage:
    if not isinstance(given, dict):
        raise ConfigurationError(f"{where}: expected a mapping, found {json.dumps(given)[:80]}")
    match = given.get("match") or {}
    labels = match.get("labels", {}) if isinstance(match, dict) else None
    if not isinstance(labels, dict) or match.keys() - {"namespace", "owner", "labels"}:
        raise ConfigurationError(f"{where}.match: expected namespace, owner or labels")
    values = {}
    for key, value in given.items():
        if key in {"match", "name"}:
            continue
        if key not in _CAMEL:
            raise ConfigurationError(f"{where}: {key} is none of {', '.join(_CAMEL)}")
        try:
            values[_CAMEL[key]] = _value(_CAMEL[key], value)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{where}.{key}: {error}") from error
    pairs = tuple((str(key), str(value)) for key, value in labels.items())
    return Stage(str(match.get("namespace", "")), str(match.get("owner", "")), pairs, values)


VOLUME: Final = "volume/"
"""Before the name of a volume in a usage: what lies in that volume, counted among `volumes` too."""
_DAY_SECONDS: Final = 86_400.0


def usage_at(lifecycle: Lifecycle, now: datetime) -> Mapping[str, int]:
    """The usage of a running pod: cpu in millicores, all else in whole units."""
    usage = parse_usage(lifecycle.usage)
    in_volumes = sum(amount for name, amount in usage.items() if name.startswith(VOLUME))
    if in_volumes:
        usage["volumes"] = usage.get("volumes", 0) + in_volumes
    return at_load(usage, lifecycle.load, now)


def seconds_to_change(lifecycle: Lifecycle, now: datetime) -> float | None:
    """The seconds until the usage changes; None: never."""
    steps = parse_load(lifecycle.load)
    if len(steps) < 2:  # noqa: PLR2004  (one step is no change)
        return None
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = (now - midnight) / timedelta(seconds=1)
    starts = [step.minute * 60.0 for step in steps]
    later = [start for start in starts if start > since]
    return later[0] - since if later else starts[0] + _DAY_SECONDS - since
