"""The releases of Kubernetes that an embedded cluster can be, and which versions they serve.

Read by the table of kinds, by the verbs and by the command line. A block of the tables says by
`since` and `until` in which releases a version exists, and by `off` that it is served only where
--runtime-config says so. Invariant: no code asks which release it is where a word of a table can
say it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from stellwerk_kube.json_values import JsonObject

DEFAULT_RELEASE: Final = "1.37"
"""The release of a cluster that a command makes, where no flag names another."""
RECORDED_RELEASE: Final = "1.36"
"""The release of a cluster made in process that names none: the one whose answers are recorded."""
_PATCHES: Final = {"1.36": "v1.36.2", "1.37": "v1.37.0", "1.38": "v1.38.0"}
RELEASES: Final = tuple(_PATCHES)
BINDING_TARGETS: Final = "the target of a binding is the name of a node"
KEPT_CLAIM_STATUSES: Final = "a status without claims keeps those that are stored"
BROKEN_BUDGETS: Final = "a budget whose status is broken is a cause of its own"
CLAIMS_OF_GROUPS: Final = "a pod gets no claim of its own for one that its group has"
VERSIONED_ANSWERS: Final = "a Status says at which resourceVersion a write was stored"
MISSING_AS_JSON: Final = "a path below /apis that names nothing is answered with a Status"
SERVED_GATES: Final = "a gate that a flag turns on must have a version of its kinds that is served"
_RULES: Final = {
    **dict.fromkeys(
        (BINDING_TARGETS, KEPT_CLAIM_STATUSES, BROKEN_BUDGETS, CLAIMS_OF_GROUPS), "1.37"
    ),
    **dict.fromkeys((VERSIONED_ANSWERS, MISSING_AS_JSON, SERVED_GATES), "1.38"),
}
"""New behaviour of the API server, by the release that began it."""
_STABILITY: Final = {
    "api/all": re.compile(r"v\d+((alpha|beta)\d+)?"),
    "api/ga": re.compile(r"v\d+"),
    "api/beta": re.compile(r"v\d+beta\d+"),
    "api/alpha": re.compile(r"v\d+alpha\d+"),
}
"""The keys for all versions of one stability; a later one counts more."""
_TRUE: Final = ("", "1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")
_MAX_KEY_PARTS: Final = 3
"""Parts of a key of the table of releases: group, kind and field."""


def exists(release: str, since: str, until: str) -> bool:
    """Whether a release is within two others, both included; empty: there is no bound."""
    number = _number(release)
    return (not since or _number(since) <= number) and (not until or number <= _number(until))


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def holds(rule: str, release: str) -> bool:
    """Whether a rule of the API server holds in a release."""
    return exists(release, _RULES[rule], "")


def git_version(release: str) -> str:
    """The version of the components of a release, such as v1.36.2."""
    return _PATCHES[release]


def version_document(release: str) -> JsonObject:
    """The document under /version."""
    major, _, minor = release.partition(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"{git_version(release)}+stellwerk",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The versions that --runtime-config turns on and off."""

    settings: tuple[tuple[str, bool], ...] = ()
    """By key: api/all and the like, VERSION, GROUP/VERSION or GROUP/VERSION/RESOURCE."""

    def serves(self, api_version: str, plural: str, *, default: bool) -> bool:
        """Whether a resource is served; `default`: it is where nothing is said."""
        settings = dict(self.settings)
        served = default
        for key, pattern in _STABILITY.items():
            if key in settings and pattern.fullmatch(api_version.rpartition("/")[2]):
                served = settings[key]
        served = settings.get(api_version, served)
        return settings.get(f"{api_version}/{plural}", served)


def runtime_config(text: str, versions: Collection[str]) -> RuntimeConfig:
    """The settings of a text like `api/beta=true,batch/v1=false`; `versions` are those there are.

    Raises:
        ValueError: the text has another form, or names a version that there is not.
    """
    groups = {each.rpartition("/")[0] for each in versions}
    settings: dict[str, bool] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = each.partition("=")
        if value not in (*_TRUE, *_FALSE):
            raise ValueError(f"invalid value {each}")
        settings[key] = value in _TRUE
        parts = key.split("/")
        if key in _STABILITY or (len(parts) == 1 and key in versions):
            continue
        group, version = parts[0], "/".join(parts[:2])
        if not 1 < len(parts) <= _MAX_KEY_PARTS or key != key.lower():
            raise ValueError(f"invalid key {key}")
        if group not in groups:
            raise ValueError(f"unknown api groups {version}")
        if version not in versions:
            raise ValueError(f"group version {version} that has not been registered")
    if settings == {"api/all": False}:
        message = "invalid runtime-config with only api/all=false"
        raise ValueError(message)
    return RuntimeConfig(tuple(settings.items()))
