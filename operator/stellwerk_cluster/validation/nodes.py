"""The rules of nodes: unique taints, blocks of addresses, what does not change.

Called through their strategy. Invariant: a node keeps the addresses and the provider it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.names import label_value_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    cidr,
    one_of,
    one_of_each_family,
    parsed_cidr,
    qualified_name,
)
from stellwerk_cluster.validation.resources import resource_quantity
from stellwerk_kube.taints import TAINT_EFFECTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject

_MAX_BLOCKS = 2
"""Blocks of addresses for a node's pods: one of IPv4 and one of IPv6."""


def validate_node(node: JsonObject) -> Iterator[FieldError]:
    """Errors of a node."""
    yield from taint_errors(node["spec"].get("taints") or (), "metadata.taints")
    yield from _resource_errors(node)
    yield from _block_errors(node["spec"].get("podCIDRs") or (), "spec.podCIDRs")


def _resource_errors(node: JsonObject) -> Iterator[FieldError]:
    for part in ("capacity", "allocatable"):
        for name, amount in (node["status"].get(part) or EMPTY).items():
            yield from resource_quantity(name, amount, f"status.{part}.{name}")


def _block_errors(blocks: Sequence[str], field: str) -> Iterator[FieldError]:
    for position, block in enumerate(blocks):
        yield from cidr(block, f"{field}[{position}]")
    if not blocks[1:]:
        return
    if len(blocks) > _MAX_BLOCKS or not one_of_each_family(blocks, parsed_cidr):
        yield bad_value(field, blocks, "may specify no more than one CIDR for each IP family")
    seen = set()
    for position, block in enumerate(blocks):
        if block in seen:
            yield duplicate(f"{field}[{position}]", block)
        seen.add(block)


def validate_node_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a node."""
    spec, was = new["spec"], old["spec"]
    if subresource != "status":
        yield from validate_node(new)
    yield from _resource_errors(new)
    seen = set()
    for position, address in enumerate(new["status"].get("addresses") or ()):
        key = (address.get("type"), address.get("address"))
        if key in seen:
            shown = internal_form("NodeAddress", address)
            yield duplicate(f"status.addresses[{position}]", shown)
        seen.add(key)
    yield from _identity_errors(spec, was)
    # The API server validates the taints of an update twice, and says so twice.
    yield from taint_errors(spec.get("taints") or (), "metadata.taints")
    if spec.get("externalID", "") != was.get("externalID", ""):
        yield forbidden_field("spec.externalID", "may not be updated")


def _identity_errors(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    """Errors of a change of what a node is given once."""
    blocks, had = spec.get("podCIDRs") or [], was.get("podCIDRs") or []
    if had:
        text = 'node updates may not change podCIDR except from "" to valid'
        changed = sum(a != b for a, b in zip(blocks, had, strict=False))
        for _ in range(changed if len(blocks) == len(had) else 1):
            yield forbidden_field("spec.podCIDRs", text)
    provider = was.get("providerID", "")
    if provider and spec.get("providerID", "") != provider:
        text = 'node updates may not change providerID except from "" to valid'
        yield forbidden_field("spec.providerID", text)


def taint_errors(taints: Iterable[JsonObject], field: str) -> Iterator[FieldError]:
    """Errors of a list of taints."""
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(taints):
        where = f"{field}[{position}]"
        key, effect, value = taint.get("key", ""), taint.get("effect", ""), taint.get("value", "")
        yield from qualified_name(key, f"{where}.key")
        errors = label_value_errors(value)
        if errors:
            yield bad_value(f"{where}.value", value, ";".join(errors))
        yield from one_of(effect, TAINT_EFFECTS, f"{where}.effect")
        if (key, effect) in seen:
            text = "taints must be unique by key and effect pair"
            yield duplicate(where, internal_form("Taint", taint), text)
        seen.add((key, effect))
