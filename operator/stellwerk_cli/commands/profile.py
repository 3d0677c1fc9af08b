"""`stellwerk profile history|rollback NAME`: the former specs of a profile.

The command line calls it; `kubectl stellwerk profile …` is the same. Invariant: only a rollback
writes, one SchedulerProfile, with the user's own rights.
"""

import argparse
from typing import TYPE_CHECKING, Final

from stellwerk.models.number_options import WholeNumber
from stellwerk_cli.commands.confirmation import add_write_arguments, is_confirmed, spec_difference
from stellwerk_cli.commands.port_arguments import (
    add_access_arguments,
    add_output_arguments,
    operator_namespace,
)
from stellwerk_kube.untrusted_text import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from stellwerk.answers.profile_history import ProfileHistory
    from stellwerk_cli.commands.output import Shown
    from stellwerk_cli.commands.printer import Printer
    from stellwerk_cli.profile_revisions import History, Rollback
    from stellwerk_kube.json_values import JsonObject

HELP: Final = "show the last accepted specs of a profile, and go back to one of them"
EXAMPLES: Final = (
    "profile history packing",
    "profile rollback packing --dry-run",
)


_MAX_REVISION: Final = 1_000_000_000
"""The largest number of a revision. They are counted from 1, and one a second makes 32 years."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the act and the profile."""
    acts = parser.add_subparsers(title="what to do", required=True, metavar="ACTION", dest="act")
    shown = acts.add_parser("history", help="the last ten accepted specs, and what became of each")
    add_output_arguments(shown)
    back = acts.add_parser("rollback", help="restore a former spec of the profile")
    back.add_argument(
        "--to",
        metavar="REVISION",
        type=WholeNumber(1, _MAX_REVISION),
        help="number of a revision in `history` (default: the newest one that is not the "
        "present spec)",
    )
    add_write_arguments(back)
    for each in (shown, back):
        each.add_argument("name", help="the SchedulerProfile")
        each.add_argument(
            "-n",
            "--namespace",
            default=operator_namespace(),
            help="the operator's namespace, which has the history (default: %(default)s; "
            "$STELLWERK_NAMESPACE names another)",
        )
        add_access_arguments(each)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Show the history, or go back in it."""
    import asyncio  # noqa: PLC0415

    if options.act == "history":
        asyncio.run(_show(options))
        return 0
    done = asyncio.run(_prepared(options))
    profile, revision = f"SchedulerProfile {options.name}", f"revision {done.revision.number}"
    if not done.changes:
        print(printable(f"{profile} has the spec of {revision} already"))
        return 0
    before, after = done.before["spec"], done.after["spec"]
    difference = printable_lines(
        spec_difference(before, after, "spec as it is", f"spec of {revision}")
    )
    if options.dry_run:
        asyncio.run(_roll_back(options, done))
        print(difference, end="")
        return 0
    print(difference, end="", flush=True)
    if not is_confirmed(options, f"Give {profile} the spec of {revision}?"):
        return 1
    asyncio.run(_roll_back(options, done))
    print(printable(f"{profile} has the spec of {revision} again"))
    return 0


async def _show(options: argparse.Namespace) -> None:
    from stellwerk.answers.answer import codec  # noqa: PLC0415
    from stellwerk.answers.profile_history import ProfileHistory  # noqa: PLC0415
    from stellwerk_cli.commands.output import show_written  # noqa: PLC0415

    history = await _history(options)
    written = codec(ProfileHistory).as_json(history.answer())
    show_written(written, options.output, shown_history())


def shown_history() -> "Shown[ProfileHistory]":
    """The kind of answer, its table and its names; rich is imported with it."""
    from stellwerk.answers.profile_history import ProfileHistory  # noqa: PLC0415
    from stellwerk_cli.commands.output import Shown  # noqa: PLC0415

    return Shown(
        ProfileHistory, print_history, lambda answer: [f"schedulerprofile/{answer.profile}"]
    )


def print_history(history: "ProfileHistory", to: "Printer") -> None:
    """Print each accepted spec, newest first, with what differs from the one before."""
    from stellwerk.answers.words import ago  # noqa: PLC0415
    from stellwerk_cli.commands.printer import Column  # noqa: PLC0415 rich

    revisions, name = history.revisions, history.profile
    if not revisions:
        to.say(f"SchedulerProfile {name} has no history here; -n names the operator's namespace")
        return
    columns = [
        *(Column(title, is_number=True) for title in ("REVISION", "GENERATION")),
        *(Column(title, is_one_line=True) for title in ("ACCEPTED", "REPLACED")),
        Column("PODS", is_number=True),
        Column("CHANGED", folds=True),
    ]
    rows = []
    before = [each.spec for each in revisions[1:]] + [None]
    for each, former in zip(revisions, before, strict=True):
        row = (
            f"{each.revision}",
            f"{each.generation or ''}",
            ago(each.accepted_at),
            ago(each.replaced_at)
            if each.replaced_at
            else ("" if each is not revisions[0] else "in use"),
            f"{each.scheduled_pods}",
            _changed(former, each.spec),
        )
        rows.append(row)
    to.table(columns, rows)


def _changed(before: "Mapping[str, Any] | None", after: "Mapping[str, Any] | None") -> str:
    """The fields of the spec that differ."""
    if after is None:
        return "not kept: too large, or no spec"
    if before is None:
        return ""
    names = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    return ", ".join(sorted(names))[:200]


async def _history(options: argparse.Namespace) -> "History":
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415
    from stellwerk_cli.profile_revisions import read_history  # noqa: PLC0415

    return await with_client(
        options.kubeconfig,
        options.context,
        lambda client: read_history(client, options.namespace, options.name),
    )


async def _prepared(options: argparse.Namespace) -> "Rollback":
    from stellwerk_cli.profile_revisions import prepare_rollback  # noqa: PLC0415

    return prepare_rollback(await _history(options), options.to, check_here)


async def _roll_back(options: argparse.Namespace, rollback: "Rollback") -> None:
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415
    from stellwerk_cli.profile_revisions import roll_back  # noqa: PLC0415

    await with_client(
        options.kubeconfig,
        options.context,
        lambda client: roll_back(client, rollback, dry_run=options.dry_run),
    )


def check_here(profile: "JsonObject") -> None:
    """Refuse what the operator would; plugins that are not installed here may be there.

    Raises:
        ProfileError: it cannot be used.
    """
    from stellwerk.plugins.registry import known_plugins  # noqa: PLC0415
    from stellwerk.profiles.spec.profile import load_profile  # noqa: PLC0415
    from stellwerk_kube.errors import UnknownPluginError  # noqa: PLC0415

    try:
        load_profile(profile, known_plugins())
    except UnknownPluginError as error:
        import sys  # noqa: PLC0415

        text = printable(f"not checked completely, because this machine lacks a plugin: {error}")
        print(text, file=sys.stderr)
