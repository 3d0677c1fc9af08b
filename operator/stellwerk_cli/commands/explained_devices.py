"""The tables of a device's and of a claim's explanation: who has which device, and for which pods.

`stellwerk explain device/NAME` and `resourceclaim/NAME` print them. Invariant: both say what the
API has shown, as the answers do.
"""

from typing import Final

from stellwerk.answers.devices import ClaimExplanation, DeviceExplanation
from stellwerk_cli.commands.output import Shown
from stellwerk_cli.commands.printer import Printer


def print_device(explanation: DeviceExplanation, to: Printer) -> None:
    """A device: what it is, who has it, and the nodes that it is for."""
    device = explanation.device
    state = "held" if device.claims else "free"
    shared = ", shared by claims" if explanation.shared else ""
    to.say((f"device/{device.device}", "bold"), f": {state}{shared}")
    more = explanation.on_nodes - len(explanation.nodes)
    nodes = ", ".join(explanation.nodes) or "none in this cluster"
    to.say(f"Nodes: {nodes}{f' and {more:,} more' * (more > 0)}")
    for name, values in (("Capacity", device.capacity), ("Attributes", device.attributes)):
        if values:
            to.say(f"{name}: {', '.join(f'{key}={it}' for key, it in values.items())}")
    for taint in device.taints:
        to.say(f"Taint: {taint.key}={taint.value}:{taint.effect}")
    for each in explanation.counters:
        to.say(
            f"Counter {each.counter_set}/{each.counter}: it takes {each.takes}, "
            f"{each.free} of {each.offered} is free"
        )
    for holder in explanation.holders:
        part = ", ".join(f"{key}={amount}" for key, amount in holder.consumed.items())
        words = [f"Held by {holder.claim} (request {holder.request})"]
        words += [f"takes {part}"] * bool(part) + ["with admin access only"] * holder.only_looks
        words += [f"for {', '.join(holder.pods)}"] * bool(holder.pods)
        to.say(", ".join(words))


def print_claim(explanation: ClaimExplanation, to: Printer) -> None:
    """A resource claim: what it asks for, what it has, and whose it is."""
    to.say((f"resourceclaim/{explanation.claim}", "bold"), f": {explanation.state}")
    if explanation.problem is not None:
        to.say((f"Its requests cannot be read: {explanation.problem}", "red"))
    for each in explanation.requests:
        count = "all" if each.count == "All" else f"{each.count}"
        where = "".join(f", where {selector}" for selector in each.selectors)
        to.say(f"Request {each.request}: {count} of class {each.device_class}{where}")
    for title, names in (
        ("Devices", explanation.devices),
        ("Reserved for", explanation.reserved_for),
        ("Waiting for it", explanation.waiting),
    ):
        to.say(f"{title}: {', '.join(names) or 'none'}")


DEVICE: Final = Shown(DeviceExplanation, print_device, lambda it: [f"device/{it.device.device}"])
CLAIM: Final = Shown(ClaimExplanation, print_claim, lambda claim: [f"resourceclaim/{claim.claim}"])
