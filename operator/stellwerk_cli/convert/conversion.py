"""KubeSchedulerConfiguration of any version, and the legacy Policy, as SchedulerProfiles.

`stellwerk convert` prints the manifests and, on standard error, the warnings. Invariant: a manifest
that comes out passes `parse_spec`, and its built-in plugins' arguments validate; nothing of the
source is dropped without a warning.
"""

import contextlib
import os
import re
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import unquote

import yaml
from pydantic import ValidationError
from yarl import URL

from stellwerk.profiles.spec import plugin_args
from stellwerk.profiles.spec.config_model import profile_error
from stellwerk.profiles.spec.extender_spec import Extender
from stellwerk.profiles.spec.profile import parse_spec
from stellwerk_cli.convert.draft import (
    NODE_PREFER_AVOID_PODS,
    SELECTOR_SPREAD,
    ProfileDraft,
    RequestedStrategy,
    as_list,
    as_object,
)
from stellwerk_cli.convert.plugins import (
    OWN_STRATEGY_VERSIONS,
    PER_POINT_VERSIONS,
    VERSIONS,
    apply_plugins,
)
from stellwerk_cli.convert.policy import apply_policy
from stellwerk_kube.destinations import FLAG as ALLOW_FLAG
from stellwerk_kube.destinations import HOSTS_ANNOTATION, HOSTS_FILE, Destinations
from stellwerk_kube.errors import ConfigurationError, ProfileError
from stellwerk_kube.file_limits import not_utf8, read_stream
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion
from stellwerk_kube.untrusted_text import shown
from stellwerk_kube.yaml_file import (
    MAX_SMALL_FILE_BYTES,
    SIMULATOR_CONFIG,
    STANDARD_INPUT,
    TEMPLATE,
    about_document,
    is_export,
    is_template,
    json_stream,
    parse_yaml,
    read_small_file,
    yaml_problem,
)

GROUP: Final = "kubescheduler.config.k8s.io"
NOT_IN_PROFILES: Final[Mapping[str, str]] = {
    "parallelism": "filters and scores work on all nodes at once",
    "leaderElection": "stellwerk run --leader-elect and --leader-elect-* set it",
    "clientConnection": "stellwerk run --kubeconfig and --context set it",
    "healthzBindAddress": "stellwerk run --bind-address sets it",
    "metricsBindAddress": "stellwerk run --bind-address sets it",
    "enableProfiling": "there are no profiling endpoints",
    "enableContentionProfiling": "there are no profiling endpoints",
    "delayCacheUntilActive": "a standby of stellwerk run --leader-elect keeps its cache filled",
}
"""Fields of the configuration that no profile has, and why nothing is lost, or where to look. A
test holds the flags against those of `stellwerk run`."""

_CONVERTED: Final = frozenset(
    {
        "apiVersion", "kind", "metadata", "profiles", "extenders", "percentageOfNodesToScore",
        "podInitialBackoffSeconds", "podMaxBackoffSeconds", "bindTimeoutSeconds",
        "disablePreemption", "schedulerName", "plugins", "pluginConfig", "algorithmSource",
        "hardPodAffinitySymmetricWeight",
    }
)  # fmt: skip

_OF_PROFILES: Final = frozenset(
    {"schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"}
)
_ARGS_MODELS: Final[Mapping[str, type[plugin_args.PluginArgs]]] = {
    model.__name__.removesuffix("Args"): model
    for model in vars(plugin_args).values()
    if isinstance(model, type) and issubclass(model, plugin_args.PluginArgs)
}

_CONVERTIBLE: Final = ("KubeSchedulerConfiguration", "Policy")
_ELISION: Final = re.compile(r"(?m)^\s*(\.\.\.|…),?\s*$")


@dataclass(frozen=True, slots=True)
class Conversion:
    """The outcome of a conversion."""

    manifests: tuple[JsonObject, ...]
    """SchedulerProfile objects, ready to apply, each behind the Secrets that it names."""

    warnings: tuple[str, ...]
    """Settings that have no counterpart, or mean something else now."""

    flags: tuple[str, ...] = ()
    """The flags of `stellwerk run`, in a cluster, without which the manifests do not work."""

    hosts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(folder of files, the addresses of extenders for which its files are used)."""


def convert_text(text: str, read_file: Callable[[str], str] | None = None) -> Conversion:
    """Convert a file with one or more configurations, in YAML or JSON.

    Lines of only `...` are skipped, as documentation leaves out parts that way. `read_file` gives
    the text of the Policy file that a v1alpha1 configuration names; without it, a warning says so.

    Raises:
        ConfigurationError: the text is no such file.
        ProfileError: a value is refused; the error names the field in the source.
    """
    documents = _parse(text)
    if not documents:
        raise ConfigurationError(
            "the file is empty: expected a KubeSchedulerConfiguration or Policy"
        )
    found, others = _configurations(documents)
    conversions = []
    for place, document, policies in found:
        try:
            policy = _policy_of(document, read_file) or policies
            converted = convert(document, policy)
        except ConfigurationError as error:
            raise ConfigurationError(f"{place}{error}") from error
        except ProfileError as error:
            raise ProfileError(f"{place}{error.field}", error.message) from error
        warnings = tuple(f"{place}{each}" for each in converted.warnings)
        conversions.append(replace(converted, warnings=warnings))
    if others:
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(Counter(others).items()))
        conversions.append(Conversion((), (f"not converted: {counts}",)))
    return Conversion(
        tuple(manifest for each in conversions for manifest in each.manifests),
        tuple(warning for each in conversions for warning in each.warnings),
        tuple(dict.fromkeys(flag for each in conversions for flag in each.flags)),
        tuple(folder for each in conversions for folder in each.hosts),
    )


def _configurations(
    documents: list[Any],
) -> tuple[list[tuple[str, Any, Mapping[str, Any] | None]], list[str]]:
    """The configurations of a file: what messages on each begin with, and the policy it names.

    Also the kinds of the objects beside them. A policy in a ConfigMap that a configuration of the
    file names, by the name of the ConfigMap or by that of a file in the same one, goes with it.

    Raises:
        ConfigurationError: the file has other objects alone.
    """
    documents = list(chain.from_iterable(map(_unpacked, documents)))
    held: list[_Held] = []
    others: list[str] = []
    for document in documents:
        kind = document.get("kind") if isinstance(document, Mapping) else None
        if kind == "ConfigMap":
            inside = list(_held_by(document))
            held += inside
            others += [] if inside else ["ConfigMap without a configuration"]
        elif kind is None or _is_convertible(document) or len(documents) == 1:
            held.append(_Held("", "", "", document))
        else:
            others.append(str(kind))
    taken: dict[int, Mapping[str, Any]] = {}
    used: set[int] = set()
    for index, each in enumerate(held):
        for other, policy in enumerate(held):
            if _names(each, policy):
                taken[index] = policy.document
                used.add(other)
    if not held:
        kinds = ", ".join(dict.fromkeys(others))
        raise ConfigurationError(
            f"cannot convert {kinds}: expected a KubeSchedulerConfiguration or Policy, or a "
            "ConfigMap that holds one"
        )
    kept = [index for index in range(len(held)) if index not in used]
    return [(held[i].place, held[i].document, taken.get(i)) for i in kept], others


@dataclass(frozen=True, slots=True)
class _Held:
    """A document, and where it stands if a ConfigMap holds it."""

    place: str
    config_map: str
    key: str
    document: Any


def _names(each: _Held, policy: _Held) -> bool:
    """Whether a configuration names a policy that a ConfigMap holds."""
    document = each.document
    if not policy.config_map or policy.document["kind"] != "Policy":
        return False
    if not isinstance(document, Mapping):
        return False
    source = as_object(document.get("algorithmSource"), "algorithmSource")
    named = as_object(source.get("policy"), "algorithmSource.policy")
    config_map = as_object(named.get("configMap"), "algorithmSource.policy.configMap")
    if config_map.get("name") == policy.config_map:
        return True
    path = policy_source(document)
    mounted = path is not None and path.rpartition("/")[2] == policy.key
    return mounted and each.config_map == policy.config_map


def _is_convertible(document: Mapping[str, Any]) -> bool:
    """Whether a document is of a kind that is converted; audit logs have a Policy, too."""
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    return document.get("kind") in _CONVERTIBLE and group in {"", GROUP}


def _unpacked(document: Any) -> list[Any]:  # noqa: ANN401 whatever a file holds
    """The items of a List, the configuration in an export of the simulator, or the document."""
    if isinstance(document, dict) and is_export(document):
        config = as_object(document.get(SIMULATOR_CONFIG), SIMULATOR_CONFIG)
        return [{"apiVersion": f"{GROUP}/v1", "kind": _CONVERTIBLE[0], **config}]
    if isinstance(document, Mapping) and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _held_by(config_map: Mapping[str, Any]) -> Iterator[_Held]:
    """The configurations and policies in the data of a ConfigMap."""
    name = str(as_object(config_map.get("metadata"), "metadata").get("name"))
    for key, text in as_object(config_map.get("data"), "data").items():
        if not isinstance(text, str) or not any(kind in text for kind in _CONVERTIBLE):
            continue
        place = f"ConfigMap {name}, {key}: "
        try:
            found = _parse(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"{place}{error}") from error
        for document in found:
            if isinstance(document, Mapping) and _is_convertible(document):
                yield _Held(place, name, str(key), document)


def _parse(text: str) -> list[Any]:
    content = _ELISION.sub("", text)
    if content.lstrip()[:1] == "{":
        # JSON may have tabs, which YAML may not.
        with contextlib.suppress(ValueError, RecursionError):
            return [document for document in json_stream(content.lstrip("\ufeff")) if document]
    try:
        return [document for document in parse_yaml(content) if document]
    except yaml.YAMLError as error:
        if is_template(content):
            raise ConfigurationError(TEMPLATE) from error
        raise ConfigurationError(f"not valid YAML or JSON: {yaml_problem(error)}") from error


def _policy_of(
    document: object, read_file: Callable[[str], str] | None
) -> Mapping[str, Any] | None:
    """Return the Policy whose file a configuration names, if it can be read."""
    path = policy_source(document) if isinstance(document, Mapping) else None
    if path is None or read_file is None:
        return None
    (policy,) = _parse(read_file(path)) or [None]
    return as_object(policy, path)


def convert(document: object, policy: Mapping[str, Any] | None = None) -> Conversion:
    """Convert one KubeSchedulerConfiguration or Policy.

    `policy` is the content of the file that a v1alpha1 configuration names (see `policy_source`).

    Raises:
        ConfigurationError: the document is something else.
        ProfileError: a value is refused; the error names the field in the source.
    """
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            f"{about_document(document)}: expected a KubeSchedulerConfiguration or Policy"
        )
    api_version, kind = str(document.get("apiVersion", "")), document.get("kind")
    if kind == "Policy" and _is_convertible(document):
        draft = ProfileDraft("default-scheduler")
        apply_policy(document, draft)
        draft.keep_old_weights()
        return _finish([draft])
    group, _, version = api_version.partition("/")
    if kind != "KubeSchedulerConfiguration" or group != GROUP or version not in VERSIONS:
        raise ConfigurationError(
            f"cannot convert {kind or 'an object without a kind'} of "
            f"{api_version or 'no version'}: "
            f"expected KubeSchedulerConfiguration of {GROUP}/{', '.join(VERSIONS)}, or Policy"
        )
    return _finish(list(_drafts(document, version, policy)))


def policy_source(document: Mapping[str, Any]) -> str | None:
    """Return the path of the Policy file that a v1alpha1 configuration names, if it does."""
    source = as_object(document.get("algorithmSource"), "algorithmSource")
    policy = as_object(source.get("policy"), "algorithmSource.policy")
    path = as_object(policy.get("file"), "algorithmSource.policy.file").get("path")
    return None if path is None else str(path)


def render(conversion: Conversion) -> str:
    """Return the manifests as YAML."""
    return yaml.safe_dump_all(conversion.manifests, sort_keys=False, width=100)


def _drafts(
    document: Mapping[str, Any], version: str, policy: Mapping[str, Any] | None
) -> Iterator[ProfileDraft]:
    """Yield a draft per profile; what the configuration says for all of them goes into each."""
    profiles = as_list(document.get("profiles"), "profiles") or [{}]
    if version == "v1alpha1":
        profiles = [document]
    for index, entry in enumerate(profiles):
        source = "" if entry is document else f"profiles[{index}]."
        profile = as_object(entry, f"profiles[{index}]")
        for field in profile if profile is not document else ():
            if field not in _OF_PROFILES:
                raise _unknown(field, source, _OF_PROFILES)
        name = profile.get("schedulerName")
        if name is None and len(profiles) > 1:
            raise ProfileError(
                f"{source}schedulerName", "required where there are several profiles"
            )
        draft = ProfileDraft("default-scheduler" if name is None else str(name))
        draft.sources |= {
            "spec.schedulerName": f"{source}schedulerName",
            "spec.plugins": f"{source}plugins",
        }
        if index == 0:
            _warn_of_the_rest(document, version, draft)
        _percentage(profile, document, source, draft)
        if version == "v1alpha1":
            _algorithm(document, policy, draft)
        apply_plugins(profile, version, source, draft)
        _shared_settings(document, draft)
        if version in PER_POINT_VERSIONS:
            draft.keep_old_weights()
        yield draft


def _unknown(name: object, source: str, known: Iterable[str]) -> ProfileError:
    """Return the refusal of a field, as kube-scheduler's strict decoding refuses it."""
    text = str(name)
    return ProfileError(f"{source}{text}", f"unknown field{suggestion(text, known)}")


def _warn_of_the_rest(document: Mapping[str, Any], version: str, draft: ProfileDraft) -> None:
    """Warn of each field that no SchedulerProfile has.

    Raises:
        ProfileError: no version of the configuration has a field.
    """
    for name in document:
        if name in NOT_IN_PROFILES:
            draft.warn(name, f"has no counterpart; {NOT_IN_PROFILES[name]}")
        elif name not in _CONVERTED:
            raise _unknown(name, "", {*_CONVERTED, *NOT_IN_PROFILES})
    if version in OWN_STRATEGY_VERSIONS:
        draft.warn(
            "apiVersion",
            f"the default plugins of {version} are replaced by those of today with the old "
            f"weights; {NODE_PREFER_AVOID_PODS} and {SELECTOR_SPREAD} are on only where they are "
            "named (see the profile legacy-v1.18)",
        )


def _percentage(
    profile: Mapping[str, Any], document: Mapping[str, Any], source: str, draft: ProfileDraft
) -> None:
    """Take the profile's percentage, else the configuration's; unset meant adaptive, which is 0."""
    for holder, place in ((profile, source), (document, "")):
        value = holder.get("percentageOfNodesToScore")
        if value is not None:
            draft.percentage_of_nodes_to_score = value
            draft.sources["spec.percentageOfNodesToScore"] = f"{place}percentageOfNodesToScore"
            return


def _shared_settings(document: Mapping[str, Any], draft: ProfileDraft) -> None:
    """Copy what kube-scheduler has once for all profiles."""
    for name in ("podInitialBackoffSeconds", "podMaxBackoffSeconds"):
        if document.get(name) is not None:
            draft.settings[name] = document[name]
            draft.sources[f"spec.{name}"] = name
    draft.add_extenders(document.get("extenders"))
    if document.get("bindTimeoutSeconds") is not None:
        draft.add_args("VolumeBinding", {"bindTimeoutSeconds": document["bindTimeoutSeconds"]})
    if document.get("hardPodAffinitySymmetricWeight") is not None:
        weight = document["hardPodAffinitySymmetricWeight"]
        draft.add_args("InterPodAffinity", {"hardPodAffinityWeight": weight})
    if document.get("disablePreemption"):
        draft.disable("postFilter", "DefaultPreemption")


def _algorithm(
    document: Mapping[str, Any], policy: Mapping[str, Any] | None, draft: ProfileDraft
) -> None:
    """Apply v1alpha1's algorithmSource: a provider's name, or a Policy."""
    source = as_object(document.get("algorithmSource"), "algorithmSource")
    provider = source.get("provider")
    if provider == "ClusterAutoscalerProvider":
        draft.score_resources(
            [RequestedStrategy("NodeResourcesMostAllocated", 1, "algorithmSource.provider")]
        )
    elif provider not in (None, "DefaultProvider"):
        draft.warn("algorithmSource.provider", f'"{provider}" has no counterpart')
    if source.get("policy") is None:
        return
    if policy is not None:
        apply_policy(policy, draft)
        return
    place = policy_source(document) or "its ConfigMap"
    draft.warn("algorithmSource.policy", f"the policy is not part of this file; convert {place}")


def _finish(drafts: list[ProfileDraft]) -> Conversion:
    """Name the objects, and check them as the operator will."""
    manifests: list[JsonObject] = []
    taken: set[str] = set()
    for index, draft in enumerate(drafts):
        name = re.sub(r"[^a-z0-9.-]+", "-", draft.scheduler_name.lower()).strip("-.") or "profile"
        if name in taken:
            raise ProfileError(
                f"profiles[{index}].schedulerName", f'duplicate "{draft.scheduler_name}"'
            )
        taken.add(name)
        manifest = draft.manifest(name)
        try:
            _check(manifest)
        except ProfileError as error:
            raise ProfileError(draft.source_of(error.field), error.message) from error
        manifests += [*_moved_into_secrets(manifest), manifest]
    return Conversion(
        tuple(manifests),
        tuple(warning for draft in drafts for warning in draft.warnings),
        _flags(manifests),
        _hosts(manifests),
    )


def _moved_into_secrets(manifest: JsonObject) -> Iterator[JsonObject]:
    """Secrets with the credentials of a profile's extenders, which names them from here on."""
    for index, written in enumerate(manifest["spec"].get("extenders") or ()):
        extender = Extender.model_validate(written)
        data: dict[str, str] = {}
        name = f"{manifest['metadata']['name']}-extender-{index}"
        reference = {"namespace": SECRETS_NAMESPACE, "name": name}
        if user_info := extender.user_info.reveal():
            user, _, password = user_info.partition(":")
            for key, text in (("username", user), ("password", password)):
                data[key] = b64encode(unquote(text).encode()).decode("ascii")
            written["urlPrefix"] = extender.shown_url_prefix
            written["secretRef"] = reference
        tls = extender.tls_config
        if tls is not None and tls.key_data and not (tls.ca_file and not tls.ca_data):
            kept = written["tlsConfig"] = dict(written["tlsConfig"])
            for field, key in _KEYS.items():
                if text := kept.pop(field, None):
                    data[key] = text
            kept["secretRef"] = reference
        if data:
            origin = str(URL(extender.shown_url_prefix).origin())
            yield {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {**reference, "annotations": {HOSTS_ANNOTATION: origin}},
                "type": "Opaque",
                "data": data,
            }


_KEYS: Final = {"certData": "tls.crt", "keyData": "tls.key", "caData": "ca.crt"}
SECRETS_NAMESPACE: Final = "stellwerk"
"""The operator's own, as the manifests have it; it reads Secrets there alone."""


def _hosts(manifests: Iterable[JsonObject]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The folders of files that extenders name, and the addresses for which they are used."""
    found: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        if manifest["kind"] == "Secret":
            continue
        for extender in parse_spec(manifest["spec"]).extenders:
            tls = extender.tls_config
            for file in () if tls is None else filter(None, tls.named_files):
                folder = os.path.dirname(file)  # noqa: PTH120 a path of another machine
                origin = str(URL(extender.shown_url_prefix).origin())
                found.setdefault(folder, {})[origin] = None
    return tuple((folder, tuple(urls)) for folder, urls in found.items())


def _flags(manifests: Iterable[JsonObject]) -> tuple[str, ...]:
    """The flags that files and addresses of extenders need."""
    files: list[str] = []
    flags: dict[str, None] = {}
    for manifest in manifests:
        if manifest["kind"] == "Secret":
            continue
        for extender in parse_spec(manifest["spec"]).extenders:
            url = URL(extender.shown_url_prefix)
            if _IN_SOME_CLUSTER.refusal(extender.shown_url_prefix):
                flags[f"{ALLOW_FLAG}={url.origin()}{url.path.rstrip('/')}"] = None
            tls = extender.tls_config
            if tls is not None:
                files += filter(None, (tls.cert_file, tls.key_file, tls.ca_file))
    if files:
        folders = [os.path.dirname(os.path.normpath(f"/{file}")) for file in files]  # noqa: PTH120
        flags[f"--extender-files-dir={os.path.commonpath(folders)}".replace("=//", "=/")] = None
    return tuple(flags)


_IN_SOME_CLUSTER: Final = Destinations(namespace="stellwerk")


def _check(manifest: JsonObject) -> None:
    """Refuse a profile that the operator would refuse.

    Raises:
        ProfileError: a value of the source is out of range; the error names the field.
    """
    spec = parse_spec(manifest["spec"])
    for index, config in enumerate(spec.plugin_config):
        model = _ARGS_MODELS.get(config.name)
        if model is None:
            continue
        try:
            model.model_validate(config.args)
        except ValidationError as error:
            raise profile_error(error, f"spec.pluginConfig[{index}].args") from error


def convert_command(path: str, output: TextIO | None = None, remarks: TextIO | None = None) -> int:
    """Convert a file ("-": standard input); returns the exit status.

    Raises:
        ConfigurationError: the file cannot be read, or holds something else; names the field.
    """
    output, remarks = output or sys.stdout, remarks or sys.stderr
    try:
        conversion = _convert(_text(path), path)
    except (ConfigurationError, ProfileError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    for warning in conversion.warnings:
        remarks.write(f"{path}: {shown(warning)}\n")
    secrets = ", ".join(
        each["metadata"]["name"] for each in conversion.manifests if each["kind"] == "Secret"
    )
    if secrets:
        remarks.write(
            f"{path}: credentials are moved into Secrets of the namespace {SECRETS_NAMESPACE}, "
            f"which the chart's value extenders.secrets has to name: {secrets}\n"
        )
    if conversion.flags:
        remarks.write(f"{path}: in a cluster, stellwerk run needs {' '.join(conversion.flags)}\n")
    for folder, urls in conversion.hosts:
        remarks.write(f"{path}: the file {folder}/{HOSTS_FILE} has to name {' '.join(urls)}\n")
    remarks.flush()
    output.write(render(conversion))
    output.flush()
    return 0


def _convert(text: str, path: str) -> Conversion:
    """Convert with the Policy file that an old configuration names, where it can be read here."""
    directory = Path() if path == STANDARD_INPUT else Path(path).parent
    try:
        return convert_text(text, lambda name: read_small_file(directory / name).decode())
    except (OSError, UnicodeDecodeError):
        # It lies on some control plane: the conversion says what is missing.
        return convert_text(text)


def _text(path: str) -> str:
    try:
        if path == STANDARD_INPUT:
            return read_stream("standard input", sys.stdin.buffer, MAX_SMALL_FILE_BYTES).decode()
        return read_small_file(Path(path)).decode()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(not_utf8(error)) from error
