"""What is known of devices, in lines for people.

Tables and `stellwerk decide --human` print them. Invariant: a line says nothing that is not in the
field `devices` of the answer.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_MOST_REASONS: Final = 6
_MOST_EXAMPLES: Final = 2

Json = Mapping[str, Any]


def device_lines(devices: Json) -> Iterator[str]:
    """The claims, and for each request why devices were not taken."""
    for claim in devices.get("claims") or ():
        given = f": {', '.join(claim['devices'])}" if claim.get("devices") else ""
        yield f"Claim {claim['claim']} is {claim['state']}{given}."
    for pool in devices.get("poolsLeftOut") or ():
        yield f"Pool {pool['pool']} is left out: {pool['reason']}."
    for request in devices.get("requests") or ():
        yield from _request_lines(request)


def _request_lines(request: Json) -> Iterator[str]:
    count = request["count"]
    wanted = "all devices" if count == "All" else f"{count} device{'s' if count != 1 else ''}"
    yield (
        f"Request {request['request']} of {request['claim']} asks for {wanted} of class "
        f"{request['deviceClass']}: {request['considered']} considered, {request['free']} could be "
        f"taken; {request['nodesWithEnough']} of {request['nodes']} nodes have enough for it alone."
    )
    for each in request["notTaken"][:_MOST_REASONS]:
        examples = ", ".join(each["examples"][:_MOST_EXAMPLES])
        yield f"  {each['devices']} not taken: {each['reason']} ({examples})"
    for error in request.get("errors") or ():
        yield f"  on {error['nodes']} nodes: {error['error']}"
