"""A solution as the API writes it: status.allocation of a claim.

Called for the node that was chosen, and for every node where all of them are shown. Invariant: the
order of results is that of the search, and configuration of classes comes before that of the claim.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from stellwerk.models.json_values import JsonObject
from stellwerk.models.resource_slice import Device
from stellwerk.plugins.devices.claims import Demand
from stellwerk.plugins.devices.search import Result, Solution
from stellwerk.plugins.devices.task import Task, Wanted

ANY_SHARE: Final = "*"
"""Stands for the shareID that is made when a claim is reserved."""


def allocations(
    task: Task, solution: Solution, node_name: str, share_id: Callable[[], str] = lambda: ANY_SHARE
) -> list[JsonObject]:
    """The allocation of each claim of a task."""
    return [
        _allocation(part.demand, results, chosen, node_name, share_id)
        for part, results, chosen in zip(task.parts, solution.results, solution.chosen, strict=True)
    ]


def _allocation(
    demand: Demand,
    results: Sequence[Result],
    chosen: Sequence[Wanted],
    node_name: str,
    share_id: Callable[[], str],
) -> JsonObject:
    devices: JsonObject = {}
    if results:
        devices["results"] = [_result(each, share_id) for each in results]
    config = [*_class_config(chosen), *_claim_config(demand, chosen)]
    if config:
        devices["config"] = config
    allocation: JsonObject = {"devices": devices}
    selector = _node_selector([each.device for each in results], node_name)
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _result(result: Result, share_id: Callable[[], str]) -> JsonObject:
    device, choice = result.device, result.wanted.choice
    driver, pool, name = device.key
    written: JsonObject = {
        "request": choice.full_name,
        "driver": driver,
        "pool": pool,
        "device": name,
    }
    if choice.admin_access:
        written["adminAccess"] = True
    if choice.written_tolerations:
        written["tolerations"] = list(choice.written_tolerations)
    if device.traits.binding_conditions:
        written["bindingConditions"] = list(device.traits.binding_conditions)
    if device.traits.binding_failure_conditions:
        written["bindingFailureConditions"] = list(device.traits.binding_failure_conditions)
    if result.consumed is not None:
        written["shareID"] = share_id()
        if result.consumed:
            amounts = result.consumed.items()
            written["consumedCapacity"] = {name: amount.text for name, amount in amounts}
    return written


def _class_config(chosen: Sequence[Wanted]) -> Iterator[JsonObject]:
    """The configuration of each class once, with the requests that use it."""
    users: dict[str, list[Wanted]] = {}
    for wanted in chosen:
        users.setdefault(wanted.device_class.name, []).append(wanted)
    for wanted_of_class in users.values():
        names = [wanted.choice.full_name for wanted in wanted_of_class]
        for each in wanted_of_class[0].device_class.config:
            yield {**each, "requests": names, "source": "FromClass"}


def _claim_config(demand: Demand, chosen: Sequence[Wanted]) -> Iterator[JsonObject]:
    """The claim's own configuration, once for each request that it names."""
    for each in demand.config:
        named = each.get("requests") or ()
        entry = {**each, "source": "FromClaim"}
        if not named:
            yield entry
        for wanted in chosen:
            if wanted.choice.request in named or wanted.choice.full_name in named:
                yield entry


def _node_selector(devices: Sequence[Device], node_name: str) -> JsonObject | None:
    """The nodes from which all of the devices can be used; None: every node."""
    if any(device.reach.node_name or device.traits.binds_to_node for device in devices):
        here = {"key": "metadata.name", "operator": "In", "values": [node_name]}
        return {"nodeSelectorTerms": [{"matchFields": [here]}]}
    term: dict[str, list[JsonObject]] = {}
    for device in devices:
        for written in (device.reach.written_selector or {}).get("nodeSelectorTerms") or ():
            for field in ("matchFields", "matchExpressions"):
                for requirement in written.get(field) or ():
                    _add_requirement(term.setdefault(field, []), requirement)
    return {"nodeSelectorTerms": [term]} if term else None


def _add_requirement(known: list[JsonObject], requirement: JsonObject) -> None:
    """Add a requirement unless it is there, whatever the order of its values."""
    meaning = _meaning(requirement)
    if all(_meaning(each) != meaning for each in known):
        known.append(requirement)


def _meaning(requirement: JsonObject) -> tuple[str, str, frozenset[str]]:
    values = frozenset(requirement.get("values") or ())
    return requirement["key"], requirement["operator"], values
