"""The classes of resources by name: standard, extended, for quotas, whole, overcommitted.

Called by the validation of pods, nodes, limits and quotas. Invariant: a name without a slash is
native, and so is one of kubernetes.io.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value
from stellwerk_cluster.apimachinery.names import qualified_name_errors
from stellwerk_cluster.validation.checks import is_whole, qualified_name, quantity_not_negative

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.objects import JsonValue

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
HUGE_PAGES: Final = "hugepages-"
_CONTAINER: Final = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
COUNTED_OBJECTS: Final = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
"""The resources of quotas that count objects."""
_QUOTA: Final = (
    _CONTAINER
    | COUNTED_OBJECTS
    | {f"{part}.{name}" for part in ("requests", "limits") for name in _CONTAINER}
    | {"requests.storage"}
)
_STANDARD: Final = _QUOTA | {"storage"}


def is_huge_pages(name: str) -> bool:
    """Whether the resource is huge pages of some size."""
    return name.startswith(HUGE_PAGES)


def is_native(name: str) -> bool:
    """Whether the resource is one of Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(maxsize=1 << 12)
def is_extended(name: str) -> bool:
    """Whether the resource is an extended one, of a device plugin for example."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not qualified_name_errors(f"requests.{name}")


def is_overcommitted(name: str) -> bool:
    """Whether requests may be lower than limits."""
    return is_native(name) and not is_huge_pages(name)


def is_standard_for_quota(name: str) -> bool:
    """Whether a quota may limit the resource without a domain before its name."""
    return name in _QUOTA or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def resource_name(name: str, field: str) -> Iterator[FieldError]:
    """Errors of the name of a resource, whatever it is for."""
    if qualified_name_errors(name):
        yield from qualified_name(name, field)
    elif "/" not in name and name not in _STANDARD and not is_huge_pages(name):
        text = "must be a standard resource type or fully qualified"
        yield bad_value(field, name, text)


def container_resource_name(name: str, field: str) -> Iterator[FieldError]:
    """Errors of the name of a resource of containers."""
    if name in _CONTAINER:
        return
    yield from resource_name(name, field)
    if "/" not in name:
        if not is_huge_pages(name):
            yield bad_value(field, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield bad_value(field, name, "doesn't follow extended resource name standard")


def resource_quantity(name: str, amount: JsonValue, field: str) -> Iterator[FieldError]:
    """Errors of the amount of a resource: never negative, and some are whole."""
    yield from quantity_not_negative(amount, field)
    if (name in COUNTED_OBJECTS or is_extended(name)) and not is_whole(amount):
        yield bad_value(field, amount, "must be an integer")
