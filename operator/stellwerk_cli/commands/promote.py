"""`stellwerk promote NAME`: a shadow and the profile that it shadows change places.

The command line calls it. Invariant: it writes two SchedulerProfiles, with the user's own rights,
and prints the change before.
"""

import argparse
from typing import TYPE_CHECKING, Final

from stellwerk_cli.commands.confirmation import add_write_arguments, is_confirmed, spec_difference
from stellwerk_cli.commands.port_arguments import add_access_arguments
from stellwerk_kube.untrusted_text import printable_lines

if TYPE_CHECKING:
    from stellwerk_cli.promotion import Promotion

HELP: Final = "swap a shadow profile with the profile that it shadows; run it again to go back"
EXAMPLES: Final = (
    "promote packing-next --dry-run",
    "promote packing-next --yes",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the profile and its cluster."""
    parser.add_argument("name", help="the SchedulerProfile with spec.shadowOf")
    add_write_arguments(parser)
    add_access_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Say what would change, promote, and say what was done."""
    import asyncio  # noqa: PLC0415

    planned = asyncio.run(_prepared(options))
    if options.dry_run:
        asyncio.run(_promote(options, planned))
        print(printable_lines(_described(planned)), end="")
        return 0
    print(printable_lines(_described(planned)), end="", flush=True)
    active = planned.active["metadata"]["name"]
    if not is_confirmed(options, f"Swap {options.name} and {active}?"):
        return 1
    asyncio.run(_promote(options, planned))
    before = "resumed: " if planned.resumed else ""
    print(
        f"{before}SchedulerProfile {active} now has the spec of {options.name}, and "
        f"{options.name} shadows it with the former spec. Promote again to go back"
    )
    return 0


async def _prepared(options: argparse.Namespace) -> "Promotion":
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415
    from stellwerk_cli.promotion import prepare_promotion  # noqa: PLC0415

    return await with_client(
        options.kubeconfig,
        options.context,
        lambda client: prepare_promotion(client, options.name),
    )


async def _promote(options: argparse.Namespace, planned: "Promotion") -> None:
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415
    from stellwerk_cli.promotion import promote  # noqa: PLC0415

    await with_client(
        options.kubeconfig,
        options.context,
        lambda client: promote(client, planned, dry_run=options.dry_run),
    )


def _described(planned: "Promotion") -> str:
    """The change of the active profile, and the comparisons that speak for it."""
    active, shadow = (each["metadata"]["name"] for each in (planned.active, planned.shadow))
    changed = spec_difference(
        planned.active["spec"], planned.active_spec, f"{active} as it is", f"{active} promoted"
    )
    changed = changed or f"{active} has the spec of {shadow} already.\n"
    if planned.resumed:
        # The annotation on the shadow says it: what it leads to is shown like what is new.
        changed = (
            f"An earlier promotion of {shadow} was interrupted; what is left of it:\n{changed}"
            + spec_difference(
                planned.shadow["spec"],
                planned.shadow_spec,
                f"{shadow} as it is",
                f"{shadow} afterwards",
            )
        )
    return f"{changed}{_comparisons(planned, active, shadow)}\n"


def _comparisons(planned: "Promotion", active: str, shadow: str) -> str:
    seen = (planned.shadow.get("status") or {}).get("shadow") or {}
    compared, differing = seen.get("compared", 0), seen.get("differing", 0)
    if not compared:
        return f"No decision of {active} was compared with {shadow} yet."
    decisions = "decision" if compared == 1 else "decisions"
    return (
        f"{shadow} would have decided {differing} of {compared} compared {decisions} differently."
    )
