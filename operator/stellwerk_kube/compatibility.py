"""The releases of Kubernetes that Stellwerk can decide as: their feature gates and their rules.

`load_profile` and the plugins' handle ask it, `app` gives it the server's release, the command line
`--compatibility` and `--feature-gates`. Invariant: GATES and ROWS are the one place that says in
which release something begins; a decision asks for a ReleaseRule, never for a number.

A rule is of one of two sorts. Behaviour follows the release. A mend is an upstream fault that a
later release repaired: with `auto` it is on whatever the server, since the fault helps no user;
a release that is named has the faults that it had, because its recorded decisions do. Patch
releases repair faults, too: a minor release that is named means its newest patch known here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, StrEnum, auto
from types import MappingProxyType
from typing import Final, Self, TypeAlias

from typing_extensions import override

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject

_GIT_VERSION: Final = re.compile(r"v?1\.(\d{1,4})(?:\.(\d{1,4}))?(?:\D|$)")
_NAME: Final = re.compile(r"1\.(\d{1,4})(?:\.(0|[1-9]\d{0,3}))?")
_EMULATING: Final = ", emulating 1."
_EMULATED: Final = re.compile(rf"{re.escape(_EMULATING)}(\d{{1,4}})(?:\.(\d{{1,4}}))?$")
_MINOR: Final = re.compile(r"(\d{1,4})\+?")
_MAX_VERSION_CHARACTERS: Final = 256
"""Characters kept of the version that a server says of itself; logs and pages show it."""
AUTO: Final = "auto"
"""As a profile's `compatibility`: the release of the API server."""


class Release(IntEnum):
    """A minor release of Kubernetes, by its number."""

    V1_33 = 33
    V1_34 = 34
    V1_35 = 35
    V1_36 = 36
    V1_37 = 37
    V1_38 = 38
    """Known to 1.38.0-alpha.2."""

    @override
    def __str__(self) -> str:
        return f"1.{self.value}"


@dataclass(frozen=True, order=True, slots=True)
class PatchRelease:
    """A patch release of Kubernetes, such as 1.36.2."""

    release: Release
    patch: int

    @override
    def __str__(self) -> str:
        return f"{self.release}.{self.patch}"


Patches: TypeAlias = Mapping[Release, int]
"""A patch level for each minor release."""

NEWEST_PATCHES: Final[Patches] = {
    Release.V1_33: 13,
    Release.V1_34: 12,
    Release.V1_35: 9,
    Release.V1_36: 5,
    Release.V1_37: 1,
    Release.V1_38: 0,
}
"""The newest patch of each minor release known here: what the minor alone means.

1.33 ended in June 2026; no rule below differs between its patches.
"""
PATCHES_BEFORE_THEY_COUNTED: Final[Patches] = {
    Release.V1_33: 0,
    Release.V1_34: 0,
    Release.V1_35: 0,
    Release.V1_36: 2,
    Release.V1_37: 0,
}
"""The patch releases that a minor release meant before Stellwerk knew patch releases."""

RELEASES: Final = tuple(str(release) for release in Release)
NEWEST_RELEASED: Final = Release.V1_37
"""The newest release that is out. Later ones are known from alpha releases and may change."""
RECORDED: Final = PatchRelease(Release.V1_36, 2)
"""The release of decisions that say none: of cases, of journals, of converted configurations."""


def decided_as(releases: Iterable[str]) -> str:
    """The sentence that says which releases of Kubernetes decisions follow, each release once."""
    return f"decisions follow Kubernetes {', '.join(dict.fromkeys(releases))}"


def decided_by_default(release: str) -> str:
    """The sentence that says which release decisions follow if a profile names none."""
    return f"{decided_as([release])} unless a profile names a release"


def release_named(text: str, patches: Patches = NEWEST_PATCHES) -> PatchRelease:
    """The release with this name: 1.36.2 is just that, and 1.36 its newest patch of `patches`.

    Raises:
        ConfigurationError: there is none, or Stellwerk does not know it.
    """
    found = _NAME.fullmatch(text)
    if found is None or f"1.{found[1]}" not in RELEASES:
        raise ConfigurationError(
            f"{text!r} is none of the releases that decisions can follow: {', '.join(RELEASES)}"
        )
    release = Release(int(found[1]))
    if found[2] is None:
        return PatchRelease(release, patches.get(release, NEWEST_PATCHES[release]))
    named = PatchRelease(release, int(found[2]))
    newest = PatchRelease(release, NEWEST_PATCHES[release])
    if named > newest:
        raise ConfigurationError(
            f"{text!r} is later than {newest}, the newest patch release of {release} that "
            f"Stellwerk knows; {str(release)!r} means {newest}"
        )
    return named


def patches_text(patches: Patches) -> str:
    """The patch releases as one text: 1.36.5,1.37.1."""
    return ",".join(str(PatchRelease(*each)) for each in sorted(patches.items()))


def patches_of(text: str) -> Patches:
    """The patch releases of such a text; releases that are not known here are left out.

    Empty: those of a Stellwerk that knew no patch releases.

    Raises:
        ConfigurationError: the text has another form.
    """
    if not text:
        return PATCHES_BEFORE_THEY_COUNTED
    patches: dict[Release, int] = {}
    for each in text.split(","):
        found = _NAME.fullmatch(each)
        if found is None or found[2] is None:
            raise ConfigurationError(f"{each!r} is not a patch release such as {RECORDED}")
        if f"1.{found[1]}" in RELEASES:
            release = Release(int(found[1]))
            patches[release] = min(int(found[2]), NEWEST_PATCHES[release])
    return patches


def server_version(document: JsonObject) -> str:
    """The version in a server's `/version`, such as `v1.36.2`, or `v1.38.0, emulating 1.37`.

    A server that was started with `--emulated-version` says two versions, and has the APIs and the
    gates of the older one; most name the same one twice.
    """
    git_version = str(document.get("gitVersion") or "unknown")[:_MAX_VERSION_CHARACTERS]
    own = _GIT_VERSION.match(git_version)
    emulated = _MINOR.fullmatch(str(document.get("emulationMinor") or ""))
    is_first = str(document.get("emulationMajor") or "") == "1"
    if own is None or emulated is None or not is_first or int(own[1]) == int(emulated[1]):
        return git_version
    return f"{git_version}{_EMULATING}{int(emulated[1])}"


def release_of_server(version: str) -> PatchRelease | None:
    """The release to follow beside a server of this `server_version`: the nearest that is known.

    A server that emulates a release is followed as that one. None: the text names no version of
    Kubernetes.
    """
    found = _EMULATED.search(version) or _GIT_VERSION.match(version)
    if found is None:
        return None
    minor = int(found[1])
    if minor < min(Release):
        return PatchRelease(min(Release), 0)
    release = Release(min(minor, max(Release)))
    newest = NEWEST_PATCHES[release]
    if minor > release or found[2] is None:
        return PatchRelease(release, newest)
    return PatchRelease(release, min(int(found[2]), newest))


def compatibility_beside(git_version: str, gates: "FeatureGates | None" = None) -> "Compatibility":
    """Return the meaning of `compatibility: auto` for decisions that a command makes.

    It is the release of the API server, as for the operator. Without a server (an empty text), and
    beside one that names no version, it is the newest release that is out.
    """
    release = release_of_server(git_version) or NEWEST_RELEASED
    return Compatibility.with_server(release, NO_GATES if gates is None else gates)


def is_newer_than_known(git_version: str) -> bool:
    """Return whether a server of this version may have fields that Stellwerk does not know."""
    found = _GIT_VERSION.match(git_version)
    return found is not None and int(found[1]) > max(Release)


# --- feature gates ------------------------------------------------------------------------------


class Stage(StrEnum):
    """The maturity of a feature."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "GA"


class Effect(Enum):
    """The meaning of a gate here."""

    RULE = auto()
    """Turns a ReleaseRule on or off."""
    SETTING = auto()
    """A setting of the profile, or what the API serves, decides in its place."""
    NONE = auto()
    """No decision depends on it; or it is always on here."""
    LEFT_OUT = auto()
    """Not built: on, it has no effect (docs/differences.md)."""
    KEPT_ON = auto()
    """Always on here: off, it has no effect (docs/differences.md)."""
    BY_FIELDS = auto()
    """Always on here. The API server drops the fields that it is about where it is off there."""


@dataclass(frozen=True, slots=True)
class Step:
    """The state of a gate from a release on."""

    since: Release
    stage: Stage
    on: bool
    locked: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """A feature gate of kube-scheduler."""

    name: str
    steps: tuple[Step, ...]
    """In order of releases."""
    effect: Effect = Effect.NONE
    needs: tuple[str, ...] = ()
    until: Release | None = None
    """The last release that knows it; None: the newest still does."""

    def at(self, release: Release) -> Step | None:
        """The gate's state in a release; None: the release does not know it."""
        if self.until is not None and release > self.until:
            return None
        steps = [step for step in self.steps if step.since <= release]
        return steps[-1] if steps else None


def _alpha(since: int) -> Step:
    return Step(Release(since), Stage.ALPHA, on=False)


def _beta(since: int, *, on: bool = True) -> Step:
    return Step(Release(since), Stage.BETA, on=on)


def _ga(since: int, *, locked: bool = True) -> Step:
    return Step(Release(since), Stage.GA, on=True, locked=locked)


_WORKLOAD: Final = "GenericWorkload"
_TOPOLOGY: Final = "TopologyAwareWorkloadScheduling"
_DEVICES: Final = "DynamicResourceAllocation"

_KEPT_ON: Final[Mapping[str, Effect]] = MappingProxyType(
    dict.fromkeys(
        (
            "SchedulerQueueingHints",
            "SchedulerPopFromBackoffQ",
            "NominatedNodeNameForExpectation",
            "DRASchedulerFilterTimeout",
            "InPlacePodVerticalScalingInitContainers",
            "InPlacePodLevelResourcesVerticalScaling",
        ),
        Effect.KEPT_ON,
    )
    | dict.fromkeys(
        (
            "NodeDeclaredFeatures",
            "MatchLabelKeysInPodTopologySpread",
            "MatchLabelKeysInPodTopologySpreadSelectorMerge",
            "PodLevelResources",
            "DRADeviceTaints",
            "DRAPrioritizedList",
            "DRAConsumableCapacity",
            "DRADeviceBindingConditions",
            "DRAPartitionableDevices",
        ),
        Effect.BY_FIELDS,
    )
)
"""The gates that are always on here, and why."""

GATES: Final[Mapping[str, Gate]] = MappingProxyType(
    {
        gate.name: replace(gate, effect=_KEPT_ON.get(gate.name, gate.effect))
        for gate in (
            # Decisions on pods.
            Gate("StorageCapacityScoring", (_alpha(33), _beta(37)), Effect.RULE),
            Gate("VolumeLimitScaling", (_alpha(35), _beta(37)), Effect.RULE),
            Gate("TaintTolerationComparisonOperators", (_alpha(35),), Effect.LEFT_OUT),
            Gate("NodeDeclaredFeatures", (_alpha(35), _beta(36), _ga(37))),
            Gate("MatchLabelKeysInPodTopologySpread", (_beta(33),)),
            Gate("MatchLabelKeysInPodTopologySpreadSelectorMerge", (_beta(34),)),
            Gate("PodLevelResources", (_alpha(33), _beta(34))),
            Gate("PodLevelResourcesFixDefaulting", (_beta(37),)),
            Gate("PodLevelResourcesFixKubeletQOSClass", (_beta(37),)),
            Gate("InPlacePodVerticalScalingInitContainers", (_beta(36), _ga(37))),
            Gate("InPlacePodLevelResourcesVerticalScaling", (_alpha(35), _beta(36))),
            Gate("InPlacePodVerticalScalingSchedulerPreemption", (_alpha(37),), Effect.LEFT_OUT),
            # Devices.
            Gate(
                _DEVICES,
                (_beta(33, on=False), _ga(34, locked=False), _ga(35)),
                Effect.SETTING,
                until=Release.V1_37,
            ),
            Gate(
                "DRADeviceTaintRules",
                (_alpha(35), _beta(36, on=False), _ga(37, locked=False), _ga(38)),
                Effect.RULE,
            ),
            Gate("DRADeviceTaints", (_alpha(33), _beta(36), _ga(37, locked=False), _ga(38))),
            Gate("DRAExtendedResource", (_alpha(34), _beta(36), _ga(37)), Effect.RULE),
            Gate("DRAPrioritizedList", (_alpha(33), _beta(34), _ga(36, locked=False), _ga(37))),
            Gate("DRAResourceClaimDeviceStatus", (_beta(33), _ga(37))),
            Gate("DRAConsumableCapacity", (_alpha(34), _beta(36), _ga(38, locked=False))),
            Gate("DRADeviceBindingConditions", (_alpha(34), _beta(36), _ga(38, locked=False))),
            Gate("DRAPartitionableDevices", (_alpha(33), _beta(36))),
            Gate("DRASchedulerFilterTimeout", (_beta(34),)),
            Gate("DRAFractionalCapacityRange", (_beta(37),), Effect.RULE),
            Gate(
                "DRAWorkloadResourceClaims",
                (_alpha(36), _beta(37, on=False)),
                Effect.SETTING,
                (_WORKLOAD,),
            ),
            Gate("DRANodeAllocatableResources", (_alpha(36),), Effect.LEFT_OUT),
            Gate("DRAPartitionableDevicesType", (_alpha(37),)),
            Gate("DRAResourcePoolStatus", (_alpha(36),)),
            Gate("DRAOptionalNodeOperations", (_alpha(37),), Effect.LEFT_OUT),
            Gate("DRADerivedAttributes", (_alpha(37),), Effect.LEFT_OUT),
            Gate("DRADeviceCompatibilityGroups", (_alpha(37),), Effect.LEFT_OUT),
            Gate("DRAListTypeAttributes", (_alpha(36),), Effect.LEFT_OUT),
            # Groups of pods.
            Gate(
                _WORKLOAD,
                (_alpha(35), _beta(37, on=False), _ga(38, locked=False)),
                Effect.SETTING,
            ),
            Gate("GangScheduling", (_alpha(35),), Effect.SETTING, (_WORKLOAD,), Release.V1_36),
            Gate(
                "WorkloadAwarePreemption",
                (_alpha(36),),
                Effect.SETTING,
                ("GangScheduling",),
                Release.V1_36,
            ),
            Gate(_TOPOLOGY, (_alpha(36), _beta(38, on=False)), Effect.SETTING, (_WORKLOAD,)),
            Gate(
                "CompositePodGroup",
                (_alpha(37), _beta(38, on=False)),
                Effect.LEFT_OUT,
                (_WORKLOAD, _TOPOLOGY),
            ),
            Gate("PodGroupPreemptionPolicy", (_alpha(37),), Effect.LEFT_OUT, (_WORKLOAD,)),
            Gate("WorkloadWithJob", (_alpha(36),), Effect.NONE, (_WORKLOAD,)),
            # Queue and speed.
            Gate("SchedulerQueueingHints", (_beta(33), _ga(34)), until=Release.V1_36),
            Gate("SchedulerPreQueueingHints", (_alpha(37), _beta(38))),
            Gate("InterPodAffinityHostnameFastPath", (_alpha(37),)),
            Gate("OpportunisticBatching", (_beta(35),)),
            Gate("SchedulerAsyncAPICalls", (_beta(34, on=False),)),
            Gate("SchedulerAsyncPreemption", (_beta(33),)),
            Gate("SchedulerPopFromBackoffQ", (_beta(33),)),
            Gate("NominatedNodeNameForExpectation", (_alpha(34), _beta(35))),
            Gate("ClearingNominatedNodeNameAfterBinding", (_beta(34),)),
            # Of the API server and others, which kube-scheduler accepts as well.
            Gate("PodTopologyLabelsAdmission", (_alpha(33), _beta(35))),
            Gate("EvictionRequestAPI", (_alpha(37),)),
            Gate("NodeLifecycleConditions", (_alpha(37),)),
            Gate("SidecarContainers", (_ga(33),), until=Release.V1_36),
            Gate("AnyVolumeDataSource", (_ga(33),), until=Release.V1_36),
            Gate("EtcdRangeStream", (_beta(37),)),
            Gate("WatchListCompression", (_beta(37),)),
            Gate("ConcurrentWatchObjectDecode", (_beta(33, on=False), _beta(37))),
            Gate("ManagedFieldsOptOut", (_alpha(38),)),
            # Gone in 1.38.
            Gate("PodSchedulingReadiness", (_ga(33),), until=Release.V1_37),
            Gate("MatchLabelKeysInPodAffinity", (_ga(33),), until=Release.V1_37),
            Gate("SeparateTaintEvictionController", (_beta(33), _ga(34)), until=Release.V1_37),
            Gate("CustomResourceFieldSelectors", (_ga(33),), until=Release.V1_37),
            Gate("CRDValidationRatcheting", (_ga(33),), until=Release.V1_37),
            Gate("KubeletTracing", (_beta(33), _ga(34)), until=Release.V1_37),
        )
    }
)
"""The gates that kube-scheduler accepts, with their states by release (`kube_features.go`)."""

ALL_ALPHA: Final = "AllAlpha"
ALL_BETA: Final = "AllBeta"
_ALL: Final = {ALL_ALPHA: Stage.ALPHA, ALL_BETA: Stage.BETA}
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates that a user has set, by name."""

    given: Mapping[str, bool] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The gates of a text such as `StorageCapacityScoring=true,VolumeLimitScaling=false`.

        Raises:
            ConfigurationError: the form is wrong, or no release knows a gate; as kube-scheduler
                says it (`featuregate.Set`).
        """
        given: dict[str, bool] = {}
        for each in filter(None, text.split(",")):
            name, equals, value = (part.strip() for part in each.partition("="))
            if not equals:
                raise ConfigurationError(f"missing bool value for {name}")
            if value not in _TRUE | _FALSE:
                raise ConfigurationError(
                    f"invalid value of {name}={value}, err: strconv.ParseBool: "
                    f'parsing "{value}": invalid syntax'
                )
            if name not in GATES and name not in _ALL:
                raise ConfigurationError(f"unrecognized feature gate: {name}")
            given[name] = value in _TRUE
        return cls(given)

    @override
    def __str__(self) -> str:
        """The text that `parse` reads."""
        return ",".join(f"{name}={_text(value)}" for name, value in self.given.items())

    def enabled(self, release: Release) -> frozenset[str]:
        """The gates that are on in a release: as the user has set them, else by default.

        What the release does not know or has locked, and what depends on a gate that is off, is as
        the release has it by default; `problems` says so.
        """
        on = {name for name, wanted in self._wanted(release).items() if wanted}
        while lacking := {name for name in on if not on.issuperset(GATES[name].needs)}:
            on -= lacking
        return frozenset(on)

    def _wanted(self, release: Release) -> dict[str, bool]:
        wanted: dict[str, bool] = {}
        for gate in GATES.values():
            step = gate.at(release)
            if step is None:
                continue
            chosen = step.on
            for name, stage in _ALL.items():
                if stage is step.stage:
                    chosen = self.given.get(name, chosen)
            chosen = self.given.get(gate.name, chosen)
            wanted[gate.name] = step.on if step.locked else chosen
        return wanted

    def problems(self, release: Release) -> Iterator[str]:
        """Reasons, in its words, for which kube-scheduler of this release refuses the gates."""
        for name, value in self.given.items():
            if name in _ALL:
                continue
            step = GATES[name].at(release)
            if step is None:
                yield f"unrecognized feature gate: {name}"
            elif step.locked and value != step.on:
                yield (
                    f"cannot set feature gate {name} to {_text(value)}, feature is locked to "
                    f"{_text(step.on)}"
                )
        wanted = self._wanted(release)
        for name, value in sorted(wanted.items()):
            off = [need for need in GATES[name].needs if not wanted.get(need, False)]
            if value and off:
                yield (
                    f"{name} is enabled, but depends on features that are disabled: "
                    f"[{' '.join(off)}]"
                )

    def without_effect(self, release: Release) -> Iterator[str]:
        """Yield the user's gates that have no effect here, though they have one upstream."""
        for name in sorted(self.enabled(release)):
            if GATES[name].effect is Effect.LEFT_OUT:
                yield f"feature gate {name} has no effect: Stellwerk leaves it out"
        for name, wanted in sorted(self._wanted(release).items()):
            step = GATES[name].at(release)
            is_kept_on = GATES[name].effect in {Effect.KEPT_ON, Effect.BY_FIELDS}
            if is_kept_on and not wanted and step is not None and step.on:
                yield f"feature gate {name}=false has no effect: Stellwerk keeps it on"


def _text(value: bool) -> str:  # noqa: FBT001 - a value to be written
    return "true" if value else "false"


NO_GATES: Final = FeatureGates()


# --- rules --------------------------------------------------------------------------------------


class Sort(StrEnum):
    """The reason for which a rule is on."""

    BEHAVIOUR = "behaviour"
    """The release, or its gate, has it."""
    MEND = "mends"
    """The release has it, or the profile says `auto`."""


class ReleaseRule(StrEnum):
    """Something that decisions do in one release and not in another; the value names it in docs."""

    SCORE_STORAGE_CAPACITY = "VolumeBinding scores nodes by the capacity of their storage"
    REQUIRE_CSI_DRIVER = "NodeVolumeLimits refuses nodes without a driver that asks for it"
    RESIZE_BY_SUMS = "A resized pod requests the largest of three sums"
    COUNT_IMAGE_VOLUMES = "ImageLocality also divides by image volumes"
    NAME_PREEMPTION_PLACEMENT = "Preemption names the node and the number of victims"
    NO_TEXT_WITHOUT_CLAIMS = "DynamicResources says nothing in PostFilter of a pod without claims"
    GROUP_PRIORITY_AGREES = "Members have the group's priority, which is 0 where it has none"
    GATES_SPEAK_AS_UPSTREAM = "Members that wait for their group say so in upstream's words"
    STOP_IN_VAIN = "A group's attempt ends as soon as too few of its members can still be placed"
    GROUP_PREEMPTS_ONCE = (
        "A group is placed once without its victims, which return while its members stay there"
    )
    ONGOING_GROUP_PREEMPTION = (
        "A group evicts no others while its victims are terminating on its members' nodes"
    )
    REMAINDER_STAYS_A_GROUP = (
        "Members that are left when their group is placed are tried again with it, not alone"
    )
    NOMINATED_PLACEMENT_FIRST = "A group tries the placement of its nominated nodes first"
    POD_HAS_ONE_GROUP = 'Members of a group that is missing wait for "pod\'s pod group"'
    DEVICE_TAINT_RULES = "DeviceTaintRules taint devices"
    BACK_EXTENDED_RESOURCES = "DeviceClasses back extended resources"
    CONFIGURE_CLAIMS_ONCE = (
        "A configuration stands once in an allocation, without needless requests"
    )
    NAME_DEVICE_IN_ERRORS = "Errors of selectors name the device"
    READ_LIST_ATTRIBUTES = "Selectors read attributes that are lists"
    GIVE_COUNTERS_BACK = "A device that is refused gives its counters back"
    SHARES_HAVE_PAID = "A device with a stored share has paid its counters"
    DISTINCT_OVER_ALL = "distinctAttribute compares all devices of all requests"
    ALL_MEANS_ALL = "All fails where a matching device has too little left"
    REFUSE_STRANGE_AMOUNTS = "Amounts that no integer holds, and negative ones, are refused"
    FRACTIONAL_RANGES = "Ranges of capacity are compared in thousandths"
    COUNTERS_ON_THEIR_NODES = "Slices with counters belong to their nodes"
    COUNT_FOR_EMPTY_SELECTORS = (
        "A spread constraint with an empty labelSelector counts every pod of the namespace"
    )
    READ_NAMESPACES_ONCE = (
        "A pending pod's namespaceSelector is compared with the namespaces' own labels alone"
    )
    EMPTY_BUDGETS_COUNT = (
        "A PodDisruptionBudget with an empty selector counts every pod of its namespace"
    )
    ABSENT_SELECTOR_TAINTS_NOTHING = "A DeviceTaintRule without deviceSelector taints no device"
    SHARED_IS_NOT_FREE = "A device with a share in use is not given to a claim exclusively"
    ALL_REFUSES_ITS_NODE = "All refuses the node whose pool is incomplete or invalid, and no other"
    CAPACITIES_HAVE_TWO_NAMES = "A capacity is meant by its short name and by its driver's, alike"
    OFFER_WITHOUT_VICTIMS = (
        "Extenders that preempt are offered nodes that they alone refuse, without victims"
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A rule, its sort, and the releases or the gate with which it begins."""

    rule: ReleaseRule
    sort: Sort
    since: Release = Release.V1_37
    gate: str = ""
    """The gate that turns the rule on or off; its states go before `since`."""
    source: str = ""
    picks: Patches = field(default_factory=dict)
    """The patch of each minor release before `since` that has it already."""
    faulty_since: Release | None = None
    """The minor release that brought a regression. Releases before it have the rule."""

    def holds_in(self, version: PatchRelease) -> bool:
        """Whether a patch release has the rule, whatever the gates."""
        if self.faulty_since is not None and version.release < self.faulty_since:
            return True
        picked = self.picks.get(version.release)
        return version.release >= self.since or (picked is not None and version.patch >= picked)

    def known_to(self, patches: Patches) -> bool:
        """Whether one of these patch releases, or one before them, has the rule."""
        return any(
            self.holds_in(PatchRelease(release, patch))
            for release, patch in patches.items()
            if self.faulty_since is None or release >= self.faulty_since
        )

    @property
    def begins(self) -> str:
        """The gate or the releases with which the rule begins, as documents name them."""
        if self.gate:
            return f"gate {self.gate}"
        picked = (str(PatchRelease(*each)) for each in sorted(self.picks.items()))
        return ", ".join((*picked, str(self.since)))


ROWS: Final = (
    Row(ReleaseRule.SCORE_STORAGE_CAPACITY, Sort.BEHAVIOUR, gate="StorageCapacityScoring"),
    Row(ReleaseRule.REQUIRE_CSI_DRIVER, Sort.BEHAVIOUR, gate="VolumeLimitScaling"),
    Row(ReleaseRule.RESIZE_BY_SUMS, Sort.BEHAVIOUR, source="#140047"),
    Row(ReleaseRule.COUNT_IMAGE_VOLUMES, Sort.BEHAVIOUR, source="#138951"),
    Row(ReleaseRule.NAME_PREEMPTION_PLACEMENT, Sort.BEHAVIOUR, source="#140180"),
    Row(ReleaseRule.NO_TEXT_WITHOUT_CLAIMS, Sort.BEHAVIOUR, source="#139864, #140535"),
    Row(ReleaseRule.GROUP_PRIORITY_AGREES, Sort.BEHAVIOUR, source="validatePodGroup"),
    Row(ReleaseRule.GATES_SPEAK_AS_UPSTREAM, Sort.BEHAVIOUR, source="preEnqueue"),
    Row(ReleaseRule.STOP_IN_VAIN, Sort.BEHAVIOUR, source="PlacementFeasible"),
    Row(ReleaseRule.GROUP_PREEMPTS_ONCE, Sort.BEHAVIOUR, source="PodGroupPostFilter, #139980"),
    Row(ReleaseRule.ONGOING_GROUP_PREEMPTION, Sort.BEHAVIOUR, source="#140641"),
    Row(
        ReleaseRule.REMAINDER_STAYS_A_GROUP,
        Sort.BEHAVIOUR,
        Release.V1_38,
        source="schedule_one_podgroup.go",
    ),
    Row(
        ReleaseRule.NOMINATED_PLACEMENT_FIRST,
        Sort.MEND,
        Release.V1_38,
        source="#139472",
    ),
    Row(ReleaseRule.POD_HAS_ONE_GROUP, Sort.BEHAVIOUR, Release.V1_38, source="preEnqueue"),
    Row(ReleaseRule.DEVICE_TAINT_RULES, Sort.BEHAVIOUR, gate="DRADeviceTaintRules"),
    Row(ReleaseRule.BACK_EXTENDED_RESOURCES, Sort.BEHAVIOUR, gate="DRAExtendedResource"),
    Row(ReleaseRule.CONFIGURE_CLAIMS_ONCE, Sort.BEHAVIOUR, source="#139731, #139732, 0ae6c25"),
    Row(ReleaseRule.NAME_DEVICE_IN_ERRORS, Sort.BEHAVIOUR, source="stellwerk_kube/cel/errors.go"),
    Row(ReleaseRule.READ_LIST_ATTRIBUTES, Sort.MEND, source="#139395"),
    Row(ReleaseRule.GIVE_COUNTERS_BACK, Sort.MEND, source="#140431", picks={Release.V1_36: 3}),
    Row(ReleaseRule.SHARES_HAVE_PAID, Sort.MEND, source="#140437"),
    Row(ReleaseRule.DISTINCT_OVER_ALL, Sort.MEND, source="#140600"),
    Row(ReleaseRule.ALL_MEANS_ALL, Sort.MEND, source="#140769"),
    Row(ReleaseRule.REFUSE_STRANGE_AMOUNTS, Sort.MEND, source="#140442, #140666"),
    Row(
        ReleaseRule.FRACTIONAL_RANGES,
        Sort.MEND,
        gate="DRAFractionalCapacityRange",
        source="#140161",
    ),
    Row(ReleaseRule.COUNTERS_ON_THEIR_NODES, Sort.MEND, source="GatherPools, buildPool"),
    # Pods of running profiles would be refused: it does not come to an older server by `auto`.
    Row(
        ReleaseRule.COUNT_FOR_EMPTY_SELECTORS,
        Sort.BEHAVIOUR,
        since=Release.V1_38,
        source="#141340",
    ),
    Row(
        ReleaseRule.READ_NAMESPACES_ONCE,
        Sort.MEND,
        since=Release.V1_38,
        source="#141563",
        picks={Release.V1_34: 12, Release.V1_35: 9, Release.V1_36: 5, Release.V1_37: 1},
        faulty_since=Release.V1_34,
    ),
    Row(ReleaseRule.EMPTY_BUDGETS_COUNT, Sort.MEND, since=Release.V1_38, source="#141785"),
    Row(
        ReleaseRule.ABSENT_SELECTOR_TAINTS_NOTHING,
        Sort.MEND,
        since=Release.V1_38,
        source="#141648",
        picks={Release.V1_37: 1},
    ),
    Row(ReleaseRule.SHARED_IS_NOT_FREE, Sort.MEND, since=Release.V1_38, source="#140798"),
    Row(ReleaseRule.ALL_REFUSES_ITS_NODE, Sort.MEND, since=Release.V1_38, source="#141898"),
    Row(ReleaseRule.CAPACITIES_HAVE_TWO_NAMES, Sort.MEND, since=Release.V1_38, source="#142202"),
    Row(ReleaseRule.OFFER_WITHOUT_VICTIMS, Sort.MEND, since=Release.V1_38, source="#135486"),
)
"""Every rule once."""


@dataclass(frozen=True, slots=True)
class Compatibility:
    """A release to decide as, and what that means."""

    version: PatchRelease
    rules: frozenset[ReleaseRule]
    gates: FeatureGates = NO_GATES
    """As the user has set them."""
    patches: Patches = field(default_factory=lambda: NEWEST_PATCHES, hash=False)
    """The patch releases that minor releases mean; journals of older versions have those of
    then."""

    @property
    def release(self) -> Release:
        """The minor release."""
        return self.version.release

    @classmethod
    def with_release(
        cls,
        version: PatchRelease | Release,
        gates: FeatureGates = NO_GATES,
        patches: Patches = NEWEST_PATCHES,
    ) -> Self:
        """Decide as a release that a user named, with the faults that it had.

        A minor release means its newest patch.
        """
        version = _patch_release(version, patches)
        return cls(version, frozenset(_rules(version, gates)), gates, patches)

    @classmethod
    def with_server(
        cls,
        version: PatchRelease | Release,
        gates: FeatureGates = NO_GATES,
        patches: Patches = NEWEST_PATCHES,
    ) -> Self:
        """Decide as the server's release, but without faults that later releases repaired.

        Later are the releases up to `patches`.
        """
        version = _patch_release(version, patches)
        mends = {
            row.rule
            for row in ROWS
            if row.sort is Sort.MEND
            if row.known_to(patches) and gates.given.get(row.gate, True)
        }
        return cls(version, frozenset(mends.union(_rules(version, gates))), gates, patches)

    def __contains__(self, rule: ReleaseRule) -> bool:
        return rule in self.rules

    def of(self, setting: str) -> "Compatibility":
        """The meaning of a profile's `compatibility` where this is the meaning of `auto`."""
        if setting == AUTO:
            return self
        named = release_named(setting, self.patches)
        return Compatibility.with_release(named, self.gates, self.patches)


def older_meanings(patches: Patches) -> list[str]:
    """Differences between the newest patch releases of then and those of today, one by one."""
    found: list[str] = []
    for release, patch in sorted(patches.items()):
        then = PatchRelease(release, patch)
        if set(_rules(then, NO_GATES)) != Compatibility.with_release(release).rules:
            found.append(f"{release} means {then}")
    later = [row for row in ROWS if row.sort is Sort.MEND and not row.known_to(patches)]
    if later:
        found.append(f"auto is without {len(later)} repairs that came later")
    return found


def _patch_release(version: PatchRelease | Release, patches: Patches) -> PatchRelease:
    if isinstance(version, PatchRelease):
        return version
    return PatchRelease(version, patches.get(version, NEWEST_PATCHES[version]))


def _rules(version: PatchRelease, gates: FeatureGates) -> Iterable[ReleaseRule]:
    enabled = gates.enabled(version.release)
    for row in ROWS:
        if row.gate in enabled if row.gate else row.holds_in(version):
            yield row.rule


AS_RECORDED: Final = Compatibility.with_release(RECORDED)
