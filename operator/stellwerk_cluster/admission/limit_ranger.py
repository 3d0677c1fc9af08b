"""LimitRanger: the requests and limits that LimitRanges give, and those that they refuse.

Called for pods and claims. The rules are in `stellwerk_kube.admission`, which readers of files
share. It stands alone because the tables name it for claims, too. Invariant: defaults are given
before validation, bounds are checked after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import forbidden
from stellwerk_kube import admission

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

LIMIT_RANGES: Final = "limitranges"


def limit_ranges(obj: JsonObject, cluster: Reader) -> Iterable[JsonObject]:
    """The LimitRanges of an object's namespace."""
    return cluster.all(LIMIT_RANGES, obj["metadata"].get("namespace", ""))


def check_limits(obj: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Refuse a pod or claim outside the bounds of its namespace.

    Raises:
        StatusError: it is (403).
    """
    try:
        admission.check_limits(obj, limit_ranges(obj, cluster), is_pod=kind.kind == "Pod")
    except admission.AdmissionError as error:
        raise forbidden(kind, obj["metadata"].get("name", ""), str(error)) from error
