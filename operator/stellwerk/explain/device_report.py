"""What an explanation says of devices: which were considered, and why each was not taken.

`report` asks for pods with claims. Invariant: counts are of devices as requests see them one by
one; that requests which find enough alone find too few together is said apart.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stellwerk.framework.types import CycleState
from stellwerk.models.answers.devices import (
    ClaimState,
    DeviceError,
    DeviceRequestState,
    DevicesNotTaken,
    DevicesOfPod,
    PoolLeftOut,
)
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.dynamic_resources.allocated import ClaimKey
from stellwerk.plugins.dynamic_resources.claims import (
    RESOURCE_CLAIM,
    claim_name,
    is_allocated,
    key_of,
    reserved_for,
)
from stellwerk.plugins.dynamic_resources.node_verdicts import AllocationVerdicts
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk.plugins.dynamic_resources.reasons import IN_USE, Look, Reasons
from stellwerk.plugins.dynamic_resources.state_data import StateData
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.world.decide import find_nodes
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

if TYPE_CHECKING:
    from stellwerk.plugins.dynamic_resources.claims import RequestData

_AT_ONCE: Final = -1.0
"""A turn that is over with the first node: how much is done in one go is the caller's affair."""
_EXAMPLES: Final = 5
_NODES_A_STEP: Final = 8
_MOST_POOLS: Final = 20


def searched(world: World, pod: PodInfo, profile: ServedProfile) -> Generator[None, None, None]:
    """Search the nodes for a pod's devices step by step, so that asking about it is quick."""
    if not pod.spec.resource_claims and not pod.extended_requests:
        return
    state = CycleState()
    state.turn_seconds = _AT_ONCE
    find_nodes(world, pod, profile, state, thorough=True)
    if state.unfinished is not None:
        yield from state.unfinished


def claims_report(world: World, pod: PodInfo) -> list[ClaimState]:
    """The pod's claims, and the devices that they have been given."""
    found: list[ClaimState] = []
    for reference in pod.spec.resource_claims:
        name = claim_name(pod, reference)
        if name == "":
            continue
        claim = world.objects.get(RESOURCE_CLAIM, pod.namespace, name) if name else None
        if claim is None:
            shown = f"{pod.namespace}/{name}" if name else f"for {reference.name}"
            found.append(ClaimState(claim=shown, state="missing"))
        elif is_allocated(claim):
            results = (claim["status"]["allocation"].get("devices") or {}).get("results") or ()
            users = [str(each.get("name")) for each in reserved_for(claim)]
            devices = [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results]
            allocated = ClaimState(
                claim=key_of(claim), state="allocated", devices=devices, reserved_for=users
            )
            found.append(allocated)
        else:
            found.append(ClaimState(claim=key_of(claim), state="needed"))
    return found


def device_report(
    world: World, pod: PodInfo, profile: ServedProfile, state: CycleState
) -> Generator[None, None, DevicesOfPod | None]:
    """The explanation's field `devices`; None for pods that ask for none."""
    state_data, plugin = state.get(DynamicResources.name, StateData), plugin_of(profile)
    if not pod.spec.resource_claims and (state_data is None or not state_data.backed):
        return None
    claims = claims_report(world, pod)
    if state_data is None or plugin is None or not state_data.anything:
        return DevicesOfPod(claims=claims)
    requests: list[DeviceRequestState] = []
    left_out: dict[str, str] = {}
    for node_count, known in plugin.allocation_verdicts(state_data, pod):
        tally = _Tally(Reasons(plugin.node_allocator, known.allocation_request))
        yield from tally.count(world.cache.snapshot)
        left_out |= tally.left_out
        requests += tally.rows(state_data.names, node_count, failures(known, state_data.names))
    pools = [
        PoolLeftOut(pool=pool, reason=reason)
        for pool, reason in sorted(left_out.items())[:_MOST_POOLS]
    ]
    return DevicesOfPod(claims=claims, requests=requests, pools_left_out=pools or None)


def failures(known: AllocationVerdicts, names: Sequence[str]) -> list[DeviceError]:
    """What failed, with the claim and the request whose search it ended."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for failure in known.failures.values():
        claim = "" if failure.claim is None else names[failure.claim]
        counts[claim, failure.request, failure.text(names)] += 1
    return [
        DeviceError(claim=claim, request=request, error=text, nodes=nodes)
        for (claim, request, text), nodes in counts.most_common(_EXAMPLES)
    ]


def plugin_of(profile: ServedProfile) -> DynamicResources | None:
    """The profile's plugin for devices, if it has it."""
    plugins = profile.framework.plugins.values()
    return next((each for at in plugins for each in at if isinstance(each, DynamicResources)), None)


@dataclass(slots=True)
class _Counted:
    """What one request makes of all devices."""

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
            if number % _NODES_A_STEP == 0:
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
        if len(examples) < _EXAMPLES:
            name = "/".join(look.device.key)
            holders = self._reasons.holders.get(look.device.key, ())
            in_use = look.reason == IN_USE and holders
            examples.append(f"{name} by {holder_text(holders[0])}" if in_use else name)

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


def holder_text(key: ClaimKey) -> str:
    """A claim that holds a device, in words."""
    kind, namespace, name = key
    return (
        f"{namespace}/{name}"
        if kind == RESOURCE_CLAIM
        else f"a pod of {namespace} that is being bound"
    )
