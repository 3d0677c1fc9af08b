"""A SchedulerProfile in the making, and the old values that it takes in their new form.

`convert.conversion` and `convert.policy` fill a draft per profile. Invariant: what a draft cannot
say is in its warnings, each of which names the field of the source.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stellwerk.profiles.spec.defaults import DEFAULT_PLUGINS, EVERY_PLUGIN
from stellwerk.profiles.spec.extender_spec import Extender, ExtenderTLSConfig
from stellwerk.profiles.spec.plugin_args import ARGS_API_VERSION, MAX_SHAPE_SCORE
from stellwerk.profiles.spec.profile import API_VERSION, KIND
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject

SELECTOR_SPREAD: Final = "SelectorSpread"
NODE_PREFER_AVOID_PODS: Final = "NodePreferAvoidPods"
NODE_RESOURCES_FIT: Final = "NodeResourcesFit"

STRATEGIES: Final[Mapping[str, str]] = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""Score plugins of their own before v1beta2, strategies of NodeResourcesFit since."""

_OLD_WEIGHTS: Final[Mapping[str, int]] = {
    "TaintToleration": 1,
    "NodeAffinity": 1,
    "InterPodAffinity": 1,
}
"""Default weights before v1beta3, where they differ from today's."""

_NATIVE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_NANOSECONDS: Final = 1_000_000_000


@dataclass(slots=True)
class RequestedStrategy:
    """A way to score resources that the source asks for."""

    plugin: str
    weight: int
    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ProfileDraft:
    """A profile as far as it is known: plugin lists, arguments, other fields, warnings."""

    scheduler_name: str
    percentage_of_nodes_to_score: int = 0
    plugins: dict[str, dict[str, list[JsonObject]]] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    optional: dict[str, int] = field(default_factory=dict)
    """Score plugins that are off by default now, with their weights."""

    args: dict[str, JsonObject] = field(default_factory=dict)
    settings: JsonObject = field(default_factory=dict)
    """The other fields of the spec."""

    warnings: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    """The field of the source behind a field of the spec, for messages on what is refused."""
    plugin_sources: dict[str, str] = field(default_factory=dict)
    """The field of the source that holds a plugin's arguments, or names the plugin."""

    def source_of(self, spec_field: str) -> str:
        """The field of the source behind a field of the manifest such as `spec.extenders[0].x`.

        A field that follows from nothing in the source is named as it is in the manifest.
        """
        behind = max(
            (each for each in self.sources if spec_field.startswith(each)), key=len, default=""
        )
        return self.sources[behind] + spec_field[len(behind) :] if behind else spec_field

    def warn(self, source: str, message: str) -> None:
        """Add a warning: something of the source that the profile cannot say."""
        self.warnings.append(f"{source}: {message}")

    def enable(self, point: str, name: str, weight: int | None = None) -> None:
        """Enable a plugin at a point or at multiPoint, once."""
        enabled = self._list(point, "enabled")
        if all(plugin["name"] != name for plugin in enabled):
            enabled.append({"name": name} if weight is None else {"name": name, "weight": weight})

    def disable(self, point: str, name: str) -> None:
        """Disable a plugin at a point or at multiPoint, once."""
        disabled = self._list(point, "disabled")
        if {"name": name} not in disabled:
            disabled.append({"name": name})

    def names(self, point: str, kind: str) -> list[str]:
        """Return what is enabled or disabled at a point so far."""
        return [plugin["name"] for plugin in self.plugins.get(point, {}).get(kind, [])]

    def add_args(self, plugin: str, args: Mapping[str, Any]) -> None:
        """Add arguments of a plugin to those it has."""
        self.args.setdefault(plugin, {}).update(args)

    def add_extenders(self, extenders: object) -> None:
        """Take the `extenders` of a configuration or Policy, if it has any."""
        listed = as_list(extenders, "extenders")
        if listed:
            self.sources["spec.extenders"] = "extenders"
            self.settings["extenders"] = [
                normal_extender(as_object(extender, f"extenders[{index}]"), f"extenders[{index}]")
                for index, extender in enumerate(listed)
            ]

    def require_labels(self, expressions: Iterable[JsonObject]) -> None:
        """Let pods run only on nodes that meet these label requirements, on top of earlier ones."""
        added = self.args.setdefault("NodeAffinity", {}).setdefault("addedAffinity", {})
        required = added.setdefault(
            "requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]}
        )
        for term in required["nodeSelectorTerms"]:
            term.setdefault("matchExpressions", []).extend(expressions)

    def score_resources(self, strategies: list[RequestedStrategy]) -> None:
        """Turn the ways to score resources into NodeResourcesFit's strategy.

        It has one; LegacyLeastAllocated stands in for LeastAllocated beside another one.
        """
        chosen = sorted(
            strategies, key=lambda strategy: STRATEGIES[strategy.plugin] == "LeastAllocated"
        )
        for index, strategy in enumerate(chosen):
            resources = strategy.arguments.get("resources") or []
            if index == 0:
                self._score_fit(strategy, resources)
            elif strategy.plugin == "NodeResourcesLeastAllocated":
                self.optional["LegacyLeastAllocated"] = strategy.weight
                if resources:
                    self.add_args(
                        "LegacyLeastAllocated", {"resources": self.resources(resources, strategy)}
                    )
            else:
                self.warn(
                    strategy.source,
                    f"{strategy.plugin} is left out, NodeResourcesFit scores by one strategy only",
                )

    def _score_fit(self, strategy: RequestedStrategy, resources: list[Any]) -> None:
        kind = STRATEGIES[strategy.plugin]
        scoring: JsonObject = {"type": kind}
        if resources:
            scoring["resources"] = self.resources(resources, strategy)
        if kind == "RequestedToCapacityRatio":
            shape = strategy.arguments.get("shape") or []
            scoring["requestedToCapacityRatio"] = {
                "shape": self.shape(shape, f"{strategy.source}.shape")
            }
        self.weights[NODE_RESOURCES_FIT] = strategy.weight
        if scoring != {"type": "LeastAllocated"}:
            self.add_args(NODE_RESOURCES_FIT, {"scoringStrategy": scoring})

    def resources(self, resources: Iterable[Any], strategy: RequestedStrategy) -> list[JsonObject]:
        """Return the resources of a strategy with today's names and a weight each."""
        return normal_resources(resources, f"{strategy.source}.resources")

    def shape(self, shape: Iterable[Any], source: str) -> list[JsonObject]:
        """Return a shape with scores of at most 10."""
        points: list[JsonObject] = []
        for index, point in enumerate(shape):
            copied = dict(as_object(point, f"{source}[{index}]"))
            score = copied.get("score", 0)
            if isinstance(score, int) and score > MAX_SHAPE_SCORE:
                copied["score"] = MAX_SHAPE_SCORE
                self.warn(f"{source}[{index}].score", f"{score} is above 10 and becomes 10")
            points.append(copied)
        return points

    def keep_old_weights(self) -> None:
        """Write the weights that were the default before v1beta3, where none is given."""
        disabled = {*self.names("score", "disabled"), *self.names("multiPoint", "disabled")}
        if EVERY_PLUGIN in disabled:
            return
        for name, weight in _OLD_WEIGHTS.items():
            if name not in disabled and name not in self.names("score", "enabled"):
                self.weights.setdefault(name, weight)

    def manifest(self, name: str) -> JsonObject:
        """Return the SchedulerProfile."""
        spec: JsonObject = {
            "schedulerName": self.scheduler_name,
            "percentageOfNodesToScore": self.percentage_of_nodes_to_score,
        }
        for plugin, weight in self.optional.items():
            self.enable("multiPoint", plugin, weight)
            if EVERY_PLUGIN in self.names("score", "disabled"):
                self.enable("score", plugin, weight)
        plugins = {
            point: {kind: listed for kind, listed in lists.items() if listed}
            for point, lists in self.plugins.items()
            if any(lists.values())
        }
        config = [{"name": name, "args": args} for name, args in self.args.items() if args]
        for index, each in enumerate(config):
            if each["name"] in self.plugin_sources:
                place = self.plugin_sources[str(each["name"])]
                self.sources[f"spec.pluginConfig[{index}].args"] = place
        weights = {
            name: weight
            for name, weight in self.weights.items()
            if weight != DEFAULT_PLUGINS.get(name)
        }
        optional = {"plugins": plugins, "weights": weights, "pluginConfig": config}
        spec |= {key: value for key, value in (optional | self.settings).items() if value}
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name},
            "spec": spec,
        }

    def _list(self, point: str, kind: str) -> list[JsonObject]:
        return self.plugins.setdefault(point, {}).setdefault(kind, [])


def as_object(value: object, source: str) -> Mapping[str, Any]:
    """Return a mapping, an absent one as empty.

    Raises:
        ProfileError: the value is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ProfileError(source, "must be an object")
    return value


def as_list(value: object, source: str) -> list[Any]:
    """Return a list, an absent one as empty.

    Raises:
        ProfileError: the value is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ProfileError(source, "must be a list")
    return value


def as_weight(value: object, source: str) -> int:
    """Return a weight; one that is absent or 0 is 1.

    Raises:
        ProfileError: the weight is negative, or no integer.
    """
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProfileError(source, f"must be an integer, not {value!r}")
    if value < 0:
        raise ProfileError(source, f"must not be negative, not {value}")
    return value or 1


def normal_resources(resources: Iterable[Any], source: str) -> list[JsonObject]:
    """Return resources with a weight each, and with CPU and Memory in lower case."""
    result: list[JsonObject] = []
    for index, resource in enumerate(resources):
        given = as_object(resource, f"{source}[{index}]")
        name = str(given.get("name", ""))
        lowered = name.lower() if name.lower() in _NATIVE_RESOURCES else name
        weight = as_weight(given.get("weight"), f"{source}[{index}].weight")
        result.append({"name": lowered, "weight": weight})
    return result


def normal_extender(extender: Mapping[str, Any], source: str) -> JsonObject:
    """Return an extender with today's field names and a timeout in text.

    Field names are read in any case, as Go reads JSON (a Policy says enableHttps); a Policy's
    timeout is a number of nanoseconds.
    """
    result = with_field_names(extender, Extender.model_fields)
    timeout = result.get("httpTimeout")
    if timeout in (None, "", 0, "0", "0s"):
        # kube-scheduler's default, which is not Stellwerk's: what is converted behaves as before.
        result["httpTimeout"] = "5s"
    elif isinstance(timeout, int) and not isinstance(timeout, bool):
        result["httpTimeout"] = f"{timeout / _NANOSECONDS:.9f}".rstrip("0").rstrip(".") + "s"
    if result.get("tlsConfig") is not None:
        tls = as_object(result["tlsConfig"], f"{source}.tlsConfig")
        result["tlsConfig"] = with_field_names(tls, ExtenderTLSConfig.model_fields)
    if result.get("prioritizeVerb"):
        result["weight"] = as_weight(result.get("weight"), f"{source}.weight")
    return result


def with_field_names(given: Mapping[str, Any], fields: Mapping[str, Any]) -> JsonObject:
    """Return a mapping whose keys are spelt as the model's fields where they differ in case."""
    spelling = {str(info.alias).lower(): str(info.alias) for info in fields.values()}
    return {spelling.get(key.lower(), key): value for key, value in given.items()}


def without_type(args: Mapping[str, Any], plugin: str) -> JsonObject:
    """Return a plugin's arguments without apiVersion and kind, which name an old version."""
    group = ARGS_API_VERSION.partition("/")[0]
    typed = str(args.get("apiVersion", "")).startswith(group)
    typed = typed or ("apiVersion" not in args and args.get("kind") == f"{plugin}Args")
    return {key: value for key, value in args.items() if not (typed and key in _TYPE)}


_TYPE: Final = ("apiVersion", "kind")
