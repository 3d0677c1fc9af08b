"""What would help a pod that lacks devices: other claims that give theirs back, or asking for less.

`report` asks, on a fork. Invariant: nothing is suggested that was not put into the fork's objects
and decided anew; the objects are as before when a try is over.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

import numpy as np

from stellwerk.explain.device_report import holder_text, plugin_of, searched
from stellwerk.framework.types import CycleState
from stellwerk.models.answers.suggestion import ChangeFields, Suggestion
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.models.taints import Taint
from stellwerk.plugins.dynamic_resources.allocated import ClaimKey
from stellwerk.plugins.dynamic_resources.claims import RESOURCE_CLAIM, key_of, reserved_for
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk.plugins.dynamic_resources.reasons import IN_USE, Reasons
from stellwerk.plugins.dynamic_resources.state_data import StateData
from stellwerk.snapshot.columns import RowColumn
from stellwerk.world.decide import find_nodes
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

_MOST_FREED: Final = 12
_MOST_TRIES: Final = 48
_SHOWN: Final = 5
_NO_REQUEST: Final = "/"
"""A constraint that names it, and nothing else, is none."""
_NODES: Final = 64
"""So many nodes are searched for devices that others hold, and for taints."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a claim."""

    text: str
    claim: JsonObject
    change: Callable[[JsonObject], None]
    """Makes it in a copy of the claim."""
    kind: str = "editClaim"
    group: str = ""
    """Of several edits of a group the first that helps is enough; empty: it is alone."""


def device_suggestions(
    world: World, pod: PodInfo, profile: ServedProfile, state: CycleState
) -> Generator[None, None, list[Suggestion]]:
    """What helps: first what takes nothing from the pod; pairs where nothing helps alone.

    Raises:
        PluginFailure: a plugin raised.
    """
    state_data, plugin = state.get(DynamicResources.name, StateData), plugin_of(profile)
    if state_data is None or plugin is None or not state_data.anything:
        return []
    holders: list[ClaimKey] = []
    taints: list[tuple[str, Taint]] = []
    for _, known in plugin.allocation_verdicts(state_data, pod):
        yield from _looked_around(
            world, Reasons(plugin.node_allocator, known.allocation_request), holders, taints
        )
    edits = [
        *_freed(world, dict.fromkeys(holders)),
        *_tolerating(state_data, dict.fromkeys(taints)),
        *(edit for claim in state_data.to_allocate for edit in _asking_less(claim)),
    ]
    search = _Tries(world, pod, profile)
    yield from search.run([(edit,) for edit in edits[:_MOST_TRIES]])
    if not search.found:
        yield from search.run(list(islice(combinations(edits, 2), _MOST_TRIES)))
    return search.found


class _Tries:
    """Edits that are tried one after the other."""

    def __init__(self, world: World, pod: PodInfo, profile: ServedProfile) -> None:
        self._world = world
        self._pod = pod
        self._profile = profile
        self._helped: set[str] = set()
        self.found: list[Suggestion] = []

    def run(self, choices: Iterable[Sequence[Edit]]) -> Generator[None, None, None]:
        """Try each, and keep what helps."""
        for edits in choices:
            groups = {edit.group for edit in edits} - {""}
            if groups & self._helped:
                continue
            rows = yield from self._rows(edits)
            if len(rows):
                self._helped |= groups
                self.found.append(self._suggestion(edits, rows))
            yield

    def _rows(self, edits: Sequence[Edit]) -> Generator[None, None, RowColumn]:
        """The rows that take the pod after the edits; the objects are as before then."""
        before = {key_of(edit.claim): edit.claim for edit in edits}
        after = deepcopy(before)
        for edit in edits:
            edit.change(after[key_of(edit.claim)])
        objects = self._world.objects
        try:
            for claim in after.values():
                objects.set(RESOURCE_CLAIM, claim)
            yield from searched(self._world, self._pod, self._profile)
            found = find_nodes(self._world, self._pod, self._profile, thorough=True).found
        finally:
            for claim in before.values():
                objects.set(RESOURCE_CLAIM, claim)
        return np.flatnonzero(found.fits)

    def _suggestion(self, edits: Sequence[Edit], rows: RowColumn) -> Suggestion:
        changes = [
            ChangeFields(kind=edit.kind, claim=key_of(edit.claim), change=edit.text)
            for edit in edits
        ]
        return Suggestion(
            text=" and ".join(edit.text for edit in edits),
            changes=changes,
            feasible_nodes=len(rows),
            nodes=self._world.cache.snapshot.names(rows[:_SHOWN].tolist()),
            alternatives=[],
        )


# --- what could be changed ----------------------------------------------------------------------


def _looked_around(
    world: World, reasons: Reasons, holders: list[ClaimKey], taints: list[tuple[str, Taint]]
) -> Generator[None, None, None]:
    """Note who holds devices that the pod could have, and which taints keep it off."""
    snapshot = world.cache.snapshot
    for row in list(snapshot.row_of.values())[:_NODES]:
        for look in reasons.of_node(snapshot.node_at(row)):
            if look.reason == IN_USE and len(holders) < _MOST_FREED:
                holders += reasons.holders.get(look.device.key, ())
            elif look.scarce and len(holders) < _MOST_FREED:
                holders += reasons.holders_in(look.device.key[:2])
            taints += [(look.wanted.choice.full_name, taint) for taint in look.taints]
        yield


def _freed(world: World, holders: Iterable[ClaimKey]) -> Iterator[Edit]:
    for key in holders:
        kind, namespace, name = key
        claim = (
            world.objects.get(RESOURCE_CLAIM, namespace, name) if kind == RESOURCE_CLAIM else None
        )
        if claim is not None:
            users = ", ".join(f"{namespace}/{each.get('name')}" for each in reserved_for(claim))
            whose = f", which {users} uses" if users else ", which no pod uses"
            yield Edit(f"free claim {holder_text(key)}{whose}", claim, _free, "freeClaim")


def _free(claim: JsonObject) -> None:
    claim["status"] = {}


def _tolerating(state_data: StateData, taints: Iterable[tuple[str, Taint]]) -> Iterator[Edit]:
    for request, taint in taints:
        toleration = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        for claim in state_data.to_allocate:
            for position, (name, _) in enumerate(_choices(claim)):
                if name == request:
                    where = f"request {name} of claim {key_of(claim)}"
                    text = f"tolerate {taint.key}:{taint.effect} in {where}"
                    yield Edit(text, claim, _extending(position, "tolerations", toleration))


def _choices(claim: JsonObject) -> list[tuple[str, JsonObject]]:
    """The requests and alternatives of a claim by their full names."""
    found: list[tuple[str, JsonObject]] = []
    for request in claim["spec"]["devices"].get("requests") or ():
        name = request["name"]
        if request.get("exactly"):
            found.append((name, request["exactly"]))
        found += [(f"{name}/{each['name']}", each) for each in request.get("firstAvailable") or ()]
    return found


def _asking_less(claim: JsonObject) -> Iterator[Edit]:
    """The claim with one thing less: fewer devices, a selector, some capacity, a constraint."""
    for position, (name, asked) in enumerate(_choices(claim)):
        where = f"request {name} of claim {key_of(claim)}"
        everything, written = asked.get("allocationMode") == "All", asked.get("count") or 1
        for count in (1,) if everything else _fewer(written):
            change = _updating(position, {"allocationMode": "ExactCount", "count": count})
            devices = "1 device" if count == 1 else f"{count} devices"
            text = f"ask for {devices} instead of {'all' if everything else written} in {where}"
            yield Edit(text, claim, change, group=where)
        for index, selector in enumerate(asked.get("selectors") or ()):
            text = f"drop selector #{index} of {where}: {selector['cel']['expression']:.80}"
            yield Edit(text, claim, _dropping(position, "selectors", index))
        if (asked.get("capacity") or {}).get("requests"):
            change = _updating(position, {"capacity": None})
            yield Edit(f"ask for no capacity in {where}", claim, change)
    for index, constraint in enumerate(claim["spec"]["devices"].get("constraints") or ()):
        kind = "matchAttribute" if constraint.get("matchAttribute") else "distinctAttribute"
        text = f"drop {kind} {constraint[kind]} of claim {key_of(claim)}"
        yield Edit(text, claim, _without_constraint(index))


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
