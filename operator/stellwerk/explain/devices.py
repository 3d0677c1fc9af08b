"""Devices and resource claims: who has which device, and which pods use or wait for a claim.

The operator's port serves them. Invariant: a page is made in steps, and is of what the API has
shown: what is being allocated at the moment counts as free.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk.explain.listings import Page, natural_order
from stellwerk.explain.steps import Steps
from stellwerk.models.answers.devices import (
    ClaimExplanation,
    ClaimRequest,
    DeviceFields,
    DevicesPage,
)
from stellwerk.models.answers.suggestion import TaintFields
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.resource_slice import PARSED, Attribute, Device, Slice
from stellwerk.plugins.dynamic_resources.claims import (
    ALL,
    claim_names,
    device_claim_of,
    is_allocated,
    key_of,
    reserved_for,
)
from stellwerk.world.world import World

_RESOURCE_SLICE: Final = "ResourceSlice"
_AT_ONCE: Final = 200
_MOST_PODS: Final = 100
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class DevicesAsked:
    """Which devices are wanted."""

    text: str = ""
    """A part of DRIVER/POOL/DEVICE; empty: any."""
    node: str = ""
    """The node that they are for; empty: any."""
    state: str = ""
    """`held` or `free`; empty: any."""

    def matches(self, name: str, *, is_held: bool) -> bool:
        """Whether a device that is for the node is wanted."""
        return self.text in name and self.state in {"", "held" if is_held else "free"}


def devices_page(world: World, page: Page, asked: DevicesAsked) -> Steps[DevicesPage]:
    """Devices of the newest generation of each pool, with the claims that hold them."""
    holders: dict[str, list[str]] = {}
    for number, claim in enumerate(list(world.objects.list(RESOURCE_CLAIM))):
        if number % _AT_ONCE == 0:
            yield
        for given in _given(claim):
            holders.setdefault(given, []).append(key_of(claim))
    node = world.cache.node(asked.node) if asked.node else None
    slices = [] if asked.node and node is None else _newest(world)
    yield
    items: list[DeviceFields] = []
    total = held = seen = 0
    for each in slices:
        if node is not None and not each.includes(node):
            continue
        for device in each.devices():
            seen += 1
            if seen % _AT_ONCE == 0:
                yield
            name = "/".join(device.key)
            elsewhere = node is not None and each.per_device and not device.reach.includes(node)
            if elsewhere or not asked.matches(name, is_held=name in holders):
                continue
            if page.offset <= total < page.offset + page.limit:
                items.append(_fields(device, holders))
            total, held = total + 1, held + (name in holders)
    return DevicesPage(total=total, held=held, items=items)


def _newest(world: World) -> list[Slice]:
    """The slices of the newest generation of each pool, in the order of the pools' names."""
    slices = [
        each[PARSED] for each in world.objects.list(_RESOURCE_SLICE) if each.get(PARSED) is not None
    ]
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        newest[each.pool] = max(each.generation, newest.get(each.pool, each.generation))
    found = [each for each in slices if each.generation == newest[each.pool]]
    return sorted(found, key=lambda each: (natural_order("/".join(each.pool)), each.name))


def _fields(device: Device, holders: Mapping[str, list[str]]) -> DeviceFields:
    name = "/".join(device.key)
    return DeviceFields(
        device=name,
        node=device.reach.node_name or None,
        attributes={key: _text(value) for key, value in device.attributes.items()},
        capacity={
            key: str(written.get("value", ""))
            for key, written in device.traits.written_capacity.items()
        },
        taints=[
            TaintFields(key=each.key, value=each.value, effect=each.effect)
            for each in device.traits.taints
        ],
        claims=sorted(holders.get(name, ())),
    )


def _text(value: Attribute) -> str:
    """An attribute; a version, a bool and a list are pairs with their kind."""
    if not isinstance(value, tuple):
        return str(value)
    inner = value[1]
    if isinstance(inner, tuple):
        return ", ".join(map(str, inner))
    return str(inner).lower() if isinstance(inner, bool) else str(inner)


def _given(claim: JsonObject) -> Iterable[str]:
    """The devices that a claim has been given."""
    if not is_allocated(claim):
        return []
    results = (claim["status"]["allocation"].get("devices") or {}).get("results") or ()
    return [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results]


def explain_claim(world: World, namespace: str, name: str) -> Steps[ClaimExplanation] | None:
    """Explain a claim; None: there is none of that name."""
    claim = world.objects.get(RESOURCE_CLAIM, namespace, name)
    return None if claim is None else _explained(world, namespace, claim)


def _explained(world: World, namespace: str, claim: JsonObject) -> Steps[ClaimExplanation]:
    waiting, name = list[str](), claim["metadata"]["name"]
    for number, entry in enumerate(list(world.queue.entries.values())):
        if number % _AT_ONCE == 0:
            yield
        pod = entry.newest
        uses = pod.namespace == namespace and pod.spec.resource_claims
        if uses and len(waiting) < _MOST_PODS and name in set(claim_names(pod)):
            waiting.append(pod.key)
    requests, problem = [], None
    try:
        requests = [
            ClaimRequest(
                request=choice.full_name,
                device_class=choice.class_name,
                count=ALL if choice.everything else choice.count,
                selectors=list(choice.selectors),
            )
            for choice in device_claim_of(claim).choices
        ]
    except _MALFORMED as error:
        problem = f"{type(error).__name__}: {error}"
    pods = [each for each in reserved_for(claim) if each.get("resource", "pods") == "pods"]
    return ClaimExplanation(
        claim=key_of(claim),
        state="allocated" if is_allocated(claim) else "needed",
        requests=requests,
        problem=problem,
        devices=list(_given(claim)),
        reserved_for=[f"{namespace}/{each.get('name')}" for each in pods],
        waiting=waiting,
    )
