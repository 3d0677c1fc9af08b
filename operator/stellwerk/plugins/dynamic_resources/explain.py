"""Devices in explanations: which were considered, why each was not taken, and what would help.

DynamicResources answers with it. Invariant: counts are of devices as requests see them one by one;
that requests which find enough alone find too few together is said apart. What is proposed is not
made here: a proposal holds the claim as it would be.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from stellwerk.answers.pod import (
    DeviceError,
    DeviceRequestState,
    DevicesNotTaken,
    DevicesOfPod,
    PoolLeftOut,
)
from stellwerk.framework.changes import EditObject, EditPod, PodPart, Proposal
from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.plugins.dynamic_resources.allocated import ClaimKey
from stellwerk.plugins.dynamic_resources.allocating_state import AllocatingState
from stellwerk.plugins.dynamic_resources.claims import (
    AllocationRequest,
    ClaimToAllocate,
    RequestData,
)
from stellwerk.plugins.dynamic_resources.constraints import constraint_states
from stellwerk.plugins.dynamic_resources.node_verdicts import AllocationVerdicts, NodeAllocator
from stellwerk.plugins.dynamic_resources.resource_pools import Pool
from stellwerk.plugins.dynamic_resources.selectors import SelectorError
from stellwerk.plugins.dynamic_resources.state_data import StateData
from stellwerk.plugins.shared.pod_resource_claims import (
    claim_states,
)
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.compatibility import ReleaseRule
from stellwerk_kube.device_capacity import consumption, published_name
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_claim import key_of, reserved_for
from stellwerk_kube.resource_slice import Device, DeviceKey, PoolKey
from stellwerk_kube.taints import Taint

# --- reasons for one device -------------------------------------------------------------------

IN_USE: Final = "in use"
_NO_CAPACITY: Final = "too little of its capacity is left"
_NO_COUNTERS: Final = "too little of the counters that it shares with other devices is left"
_SCARCE: Final = frozenset({_NO_CAPACITY, _NO_COUNTERS})


class Look(NamedTuple):
    """One request looked at one device."""

    claim: int
    """Its position in the request."""
    wanted: RequestData
    device: Device
    reason: str
    """The reason for which it is not taken; empty: it could be."""
    taints: Sequence[Taint] = ()
    """Those that the request does not tolerate, where that is the reason."""

    @property
    def scarce(self) -> bool:
        """Whether others have taken what the request lacks of the device or its pool."""
        return self.reason in _SCARCE


class Reasons:
    """Reasons for the devices of nodes, for one request."""

    def __init__(
        self, node_allocator: NodeAllocator, allocation_request: AllocationRequest
    ) -> None:
        """As devices are in use now."""
        self._node_allocator = node_allocator
        self._allocation_request = allocation_request
        self.holders: Mapping[DeviceKey, Sequence[ClaimKey]] = node_allocator.allocated.holders()

    def holders_in(self, pool: PoolKey) -> list[ClaimKey]:
        """The claims that hold anything of a pool."""
        held = self._node_allocator.allocated.in_pool.get(pool, {})
        return [claim for device in held for claim in self.holders.get(device, ())]

    def left_out(self, node: NodeInfo) -> Iterator[tuple[str, str]]:
        """The pools of a node from which nothing is taken, and why."""
        for pool in self._node_allocator.resource_pools.pools(node).pools:
            if pool.incomplete:
                yield pool.name, "it is being updated: slices of its newest generation are missing"
            elif pool.invalid:
                yield (
                    pool.name,
                    (
                        "it contradicts itself: a device or counter set occurs twice, or a device "
                        "consumes from counters that do not exist"
                    ),
                )

    def of_node(self, node: NodeInfo) -> Iterator[Look]:
        """Every request's look at every device of a node."""
        pools = self._node_allocator.resource_pools.pools(node)
        for pool in pools.pools:
            for device in pool.devices():
                for position, claim in enumerate(self._allocation_request.claims):
                    for choices in claim.requests:
                        for wanted in choices:
                            yield self._look(position, claim, wanted, device, pool, node)

    def _look(
        self,
        position: int,
        claim: ClaimToAllocate,
        wanted: RequestData,
        device: Device,
        pool: Pool,
        node: NodeInfo,
    ) -> Look:
        reason = self._in_use(wanted, device) or _not_selected(wanted, device)
        if not reason and device.source.per_device and not device.reach.includes(node):
            reason = "it is for other nodes"
        reason = reason or self._lacking(wanted, device, pool)
        if reason:
            return Look(position, wanted, device, reason)
        taints = wanted.choice.untolerated(device.traits.taints)
        if taints:
            named = ", ".join(f"{each.key}:{each.effect}" for each in taints)
            return Look(position, wanted, device, f"taint {named} is not tolerated", taints)
        return Look(position, wanted, device, _not_comparable(claim, wanted, device))

    def _in_use(self, wanted: RequestData, device: Device) -> str:
        allocating = AllocatingState(self._node_allocator.allocated, self._node_allocator.rules)
        taken = not wanted.choice.admin_access and allocating.is_held(device)
        return IN_USE if taken else ""

    def _lacking(self, wanted: RequestData, device: Device, pool: Pool) -> str:
        """The capacity or counter of which the device, or its pool, has too little."""
        allocating, choice, traits = (
            AllocatingState(self._node_allocator.allocated, self._node_allocator.rules),
            wanted.choice,
            device.traits,
        )
        if not allocating.has_room(device, choice.capacity):
            has_two_names = ReleaseRule.CAPACITIES_HAVE_TWO_NAMES in allocating.rules
            missing = sorted(
                name
                for name in choice.capacity.keys() - traits.capacities.keys()
                if not has_two_names
                or published_name(traits.capacities, name, device.driver) is None
            )
            if missing:
                return f"it has no capacity {missing[0]}"
            taken = consumption(traits.capacities, choice.capacity, allocating.rules, device.driver)
            if taken is None:
                return "its policy does not allow this amount"
            return _NO_CAPACITY
        if not allocating.charge_if_needed(device, pool):
            return _NO_COUNTERS
        return ""


def _not_selected(wanted: RequestData, device: Device) -> str:
    """The selector that does not match, or has no answer."""
    of_class = wanted.device_class.selectors
    for index, selector in enumerate(wanted.selectors):
        if index < len(of_class):
            where = f"selector #{index} of class {wanted.device_class.name}"
            expression = of_class[index]
        else:
            where = f"selector #{index - len(of_class)}"
            expression = wanted.choice.selectors[index - len(of_class)]
        try:
            if not selector.matches(device):
                return f"{where}: {expression:.200}"
        except SelectorError as error:
            return f"{where} fails: {error}"
    return ""


def _not_comparable(claim: ClaimToAllocate, wanted: RequestData, device: Device) -> str:
    """The attribute that a constraint compares and the device does not have."""
    constraints = claim.spec.constraints
    for constraint, devices in zip(constraints, constraint_states(constraints), strict=True):
        if not devices.add(wanted.choice, device):
            return f"it has no attribute {constraint.attribute}, which a constraint compares"
    return ""


_MAX_EXAMPLES: Final = 5
"""Nodes or devices that are named as examples."""
_MAX_NODES_PER_STEP: Final = 8
"""Nodes that are searched before the next decision may be made."""
_MAX_POOLS: Final = 20
"""Pools that are named."""
_MAX_FREED: Final = 12
"""Devices that others hold and that are proposed to be freed."""
_NO_REQUEST: Final = "/"
"""A constraint that names it, and nothing else, is none."""
_MAX_SEARCHED_NODES: Final = 64
"""Nodes that are searched for devices that others hold, and for taints."""
_MAX_CLAIMS: Final = 4
"""Claims that are left out one by one to see which of them is in the way."""


@dataclass(frozen=True, slots=True)
class DeviceSearch:
    """The search for a pod's devices, as an attempt has left it."""

    pod: PodInfo
    objects: ObjectStore
    snapshot: Snapshot
    state_data: StateData | None
    """None: PreFilter did not come to the pod's claims."""
    allocator: NodeAllocator
    verdicts: Sequence[tuple[int, AllocationVerdicts]]
    """The number of nodes for each set of claims that they come to, and their verdicts."""


# --- which devices were considered --------------------------------------------------------------


def considered(search: DeviceSearch) -> Generator[None, None, DevicesOfPod | None]:
    """The claims of the pod, and what its requests make of all devices; None: it asks for none."""
    pod, state_data = search.pod, search.state_data
    if not pod.spec.resource_claims and (state_data is None or not state_data.backed):
        return None
    claims = claim_states(search.objects, pod)
    if state_data is None or not state_data.anything:
        return DevicesOfPod(claims=claims)
    requests: list[DeviceRequestState] = []
    left_out: dict[str, str] = {}
    for node_count, known in search.verdicts:
        tally = _Tally(Reasons(search.allocator, known.allocation_request))
        yield from tally.count(search.snapshot)
        left_out |= tally.left_out
        requests += tally.rows(state_data.names, node_count, _failures(known, state_data.names))
    pools = [
        PoolLeftOut(pool=pool, reason=reason)
        for pool, reason in sorted(left_out.items())[:_MAX_POOLS]
    ]
    return DevicesOfPod(claims=claims, requests=requests, pools_left_out=pools or None)


def _failures(known: AllocationVerdicts, names: Sequence[str]) -> list[DeviceError]:
    """Errors, each with the claim and the request whose search it ended."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for failure in known.failures.values():
        claim = "" if failure.claim is None else names[failure.claim]
        counts[claim, failure.request, failure.text(names)] += 1
    return [
        DeviceError(claim=claim, request=request, error=text, nodes=nodes)
        for (claim, request, text), nodes in counts.most_common(_MAX_EXAMPLES)
    ]


@dataclass(slots=True)
class _Counted:
    """All devices, counted by how one request judges them."""

    considered: int = 0
    free: int = 0
    enough: int = 0
    """Nodes on which it finds enough, alone."""
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)


class _Tally:
    """Devices by request and reason, over all nodes."""

    def __init__(self, reasons: Reasons) -> None:
        self._reasons = reasons
        self._counted: dict[tuple[int, RequestData], _Counted] = {}
        self._seen: set[tuple[RequestData, tuple[str, str, str]]] = set()
        self.left_out: dict[str, str] = {}
        """Pools from which nothing is taken, and why."""

    def count(self, snapshot: Snapshot) -> Generator[None, None, None]:
        """Look at the devices of every node."""
        for number, row in enumerate(snapshot.row_of.values()):
            free: Counter[tuple[int, RequestData]] = Counter()
            node = snapshot.node_at(row)
            self.left_out |= dict(self._reasons.left_out(node))
            for look in self._reasons.of_node(node):
                self._take_up(look)
                if not look.reason:
                    free[look.claim, look.wanted] += 1
            for (claim, wanted), devices in free.items():
                if wanted.choice.everything or devices >= wanted.choice.count:
                    self._counted[claim, wanted].enough += 1
            if number % _MAX_NODES_PER_STEP == 0:
                yield

    def _take_up(self, look: Look) -> None:
        counted = self._counted.setdefault((look.claim, look.wanted), _Counted())
        key = (look.wanted, look.device.key)
        if key in self._seen:
            return
        self._seen.add(key)
        counted.considered += 1
        if not look.reason:
            counted.free += 1
            return
        counted.reasons[look.reason] += 1
        examples = counted.examples.setdefault(look.reason, [])
        if len(examples) < _MAX_EXAMPLES:
            name = "/".join(look.device.key)
            holders = self._reasons.holders.get(look.device.key, ())
            in_use = look.reason == IN_USE and holders
            examples.append(f"{name} by {_holder_text(holders[0])}" if in_use else name)

    def rows(
        self, names: Sequence[str], nodes: int, failed: Sequence[DeviceError]
    ) -> list[DeviceRequestState]:
        """A row for each request."""
        rows: list[DeviceRequestState] = []
        for (claim, wanted), counted in self._counted.items():
            choice = wanted.choice
            errors = [each for each in failed if each.request == choice.full_name]
            not_taken = [
                DevicesNotTaken(reason=reason, devices=devices, examples=counted.examples[reason])
                for reason, devices in counted.reasons.most_common()
            ]
            row = DeviceRequestState(
                claim=names[claim],
                request=choice.full_name,
                device_class=choice.class_name,
                count="All" if choice.everything else choice.count,
                considered=counted.considered,
                free=counted.free,
                nodes=nodes,
                nodes_with_enough=counted.enough,
                not_taken=not_taken,
                errors=errors or None,
            )
            rows.append(row)
        return rows


def _holder_text(key: ClaimKey) -> str:
    """A claim that holds a device, in words."""
    kind, namespace, name = key
    return (
        f"{namespace}/{name}"
        if kind == RESOURCE_CLAIM
        else f"a pod of {namespace} that is being bound"
    )


# --- what could be changed ----------------------------------------------------------------------


def proposals(search: DeviceSearch) -> Iterator[Proposal | None]:
    """Doing without a claim; other claims that give devices back; asking for less."""
    for reference in search.pod.spec.resource_claims[:_MAX_CLAIMS]:
        words = f"do without resource claim {reference.name}"
        yield EditPod(words, _without_resource_claim(reference.name), PodPart.NEEDS)
    state_data = search.state_data
    if state_data is None or not state_data.anything:
        return
    holders: list[ClaimKey] = []
    taints: list[tuple[str, Taint]] = []
    for _, known in search.verdicts:
        reasons = Reasons(search.allocator, known.allocation_request)
        yield from _looked_around(search.snapshot, reasons, holders, taints)
    yield from _freed(search.objects, dict.fromkeys(holders))
    yield from _tolerating(state_data, dict.fromkeys(taints))
    for claim in state_data.to_allocate:
        yield from _asking_less(claim)


def _without_resource_claim(name: str) -> Callable[[PodInfo], PodInfo]:
    def edit(pod: PodInfo) -> PodInfo:
        left = tuple(each for each in pod.spec.resource_claims if each.name != name)
        return replace(pod, spec=replace(pod.spec, resource_claims=left))

    return edit


def _looked_around(
    snapshot: Snapshot, reasons: Reasons, holders: list[ClaimKey], taints: list[tuple[str, Taint]]
) -> Generator[None, None, None]:
    """Note who holds devices that the pod could have, and which taints keep it off."""
    for row in list(snapshot.row_of.values())[:_MAX_SEARCHED_NODES]:
        for look in reasons.of_node(snapshot.node_at(row)):
            if look.reason == IN_USE and len(holders) < _MAX_FREED:
                holders += reasons.holders.get(look.device.key, ())
            elif look.scarce and len(holders) < _MAX_FREED:
                holders += reasons.holders_in(look.device.key[:2])
            taints += [(look.wanted.choice.full_name, taint) for taint in look.taints]
        yield


def _freed(objects: ObjectStore, holders: Iterable[ClaimKey]) -> Iterator[EditObject]:
    for key in holders:
        kind, namespace, name = key
        claim = objects.get(RESOURCE_CLAIM, namespace, name) if kind == RESOURCE_CLAIM else None
        if claim is not None:
            users = ", ".join(f"{namespace}/{each.get('name')}" for each in reserved_for(claim))
            whose = f", which {users} uses" if users else ", which no pod uses"
            yield _edit(f"free claim {_holder_text(key)}{whose}", claim, _free, kind="freeClaim")


def _free(claim: JsonObject) -> None:
    claim["status"] = {}


def _tolerating(state_data: StateData, taints: Iterable[tuple[str, Taint]]) -> Iterator[EditObject]:
    for request, taint in taints:
        toleration = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        for claim in state_data.to_allocate:
            for position, (name, _) in enumerate(_choices(claim)):
                if name == request:
                    where = f"request {name} of claim {key_of(claim)}"
                    text = f"tolerate {taint.key}:{taint.effect} in {where}"
                    yield _edit(text, claim, _extending(position, "tolerations", toleration))


def _choices(claim: JsonObject) -> list[tuple[str, JsonObject]]:
    """The requests and alternatives of a claim by their full names."""
    found: list[tuple[str, JsonObject]] = []
    for request in claim["spec"]["devices"].get("requests") or ():
        name = request["name"]
        if request.get("exactly"):
            found.append((name, request["exactly"]))
        found += [(f"{name}/{each['name']}", each) for each in request.get("firstAvailable") or ()]
    return found


def _asking_less(claim: JsonObject) -> Iterator[EditObject]:
    """The claim with one thing less: fewer devices, a selector, some capacity, a constraint."""
    for position, (name, asked) in enumerate(_choices(claim)):
        where = f"request {name} of claim {key_of(claim)}"
        everything, written = asked.get("allocationMode") == "All", asked.get("count") or 1
        for count in (1,) if everything else _fewer(written):
            change = _updating(position, {"allocationMode": "ExactCount", "count": count})
            devices = "1 device" if count == 1 else f"{count} devices"
            text = f"ask for {devices} instead of {'all' if everything else written} in {where}"
            yield _edit(text, claim, change, group=where)
        for index, selector in enumerate(asked.get("selectors") or ()):
            text = f"drop selector #{index} of {where}: {selector['cel']['expression']:.80}"
            yield _edit(text, claim, _dropping(position, "selectors", index))
        if (asked.get("capacity") or {}).get("requests"):
            change = _updating(position, {"capacity": None})
            yield _edit(f"ask for no capacity in {where}", claim, change)
    for index, constraint in enumerate(claim["spec"]["devices"].get("constraints") or ()):
        kind = "matchAttribute" if constraint.get("matchAttribute") else "distinctAttribute"
        text = f"drop {kind} {constraint[kind]} of claim {key_of(claim)}"
        yield _edit(text, claim, _without_constraint(index))


def _fewer(count: int) -> list[int]:
    """Numbers worth a try, the largest first."""
    return sorted({count - 1, count * 3 // 4, count // 2, 1} - {0, count}, reverse=True)


def _updating(position: int, fields: JsonObject) -> Callable[[JsonObject], None]:
    return lambda claim: _choices(claim)[position][1].update(fields)


def _extending(position: int, field: str, added: JsonObject) -> Callable[[JsonObject], None]:
    def change(claim: JsonObject) -> None:
        asked = _choices(claim)[position][1]
        asked[field] = [*(asked.get(field) or ()), added]

    return change


def _dropping(position: int, field: str, index: int) -> Callable[[JsonObject], None]:
    def change(claim: JsonObject) -> None:
        asked = _choices(claim)[position][1]
        # Its place is kept for other edits: a selector that says nothing against a device.
        asked[field][index] = {"cel": {"expression": "true"}}

    return change


def _without_constraint(index: int) -> Callable[[JsonObject], None]:
    def change(claim: JsonObject) -> None:
        claim["spec"]["devices"]["constraints"][index]["requests"] = [_NO_REQUEST]

    return change


def _edit(
    text: str,
    claim: JsonObject,
    change: Callable[[JsonObject], None],
    *,
    kind: str = "editClaim",
    group: str = "",
) -> EditObject:
    return EditObject(kind, text, RESOURCE_CLAIM, claim, change, group)
