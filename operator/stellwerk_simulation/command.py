"""`stellwerk simulate`: a trace against one profile or several, in virtual time.

Called by the command line, which loads nothing else of this package until a simulation runs.
Invariant: a curve file is there whole or not at all, and nothing is run for a file that could not
be written.
"""

import argparse
import math
import os
import sys
from pathlib import Path
from typing import Final

from stellwerk.errors import ConfigurationError

_MOST_SHARE: Final = 10.0
_MOST_SEED: Final = 2**31 - 2
_DEFAULT_SEED: Final = 42
_CURVE_KINDS: Final = (".csv", ".json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    for name, text in (("--nodes", "the nodes"), ("--pods", "the pods, in order")):
        parser.add_argument(
            name,
            metavar="FILE",
            type=Path,
            help=f"{text} of a trace: CSV as the openb GPU traces are published, also .xz",
        )
    parser.add_argument(
        "--profile",
        metavar="NAME|FILE",
        action="append",
        help="a ready profile (random, dot-product, gpu-clustering, gpu-packing, best-fit, fgd) or "
        "a file with a SchedulerProfile; may be repeated",
    )
    parser.add_argument(
        "--inflate",
        metavar="SHARE",
        type=_share,
        help="shuffle the pods, and cut or fill up the list until it asks for this share of all "
        "GPUs, as the published experiment does: 1.3 (default: the list as it is)",
    )
    parser.add_argument(
        "--seed",
        metavar="NUMBER",
        type=_seed,
        action="append",
        help=f"of everything random; may be repeated (default: {_DEFAULT_SEED})",
    )
    parser.add_argument(
        "--curve",
        metavar="FILE",
        type=Path,
        help="write allocation and fragmentation at every percent of arrived load there, as .csv "
        "or .json",
    )
    parser.add_argument(
        "--jobs",
        metavar="NUMBER",
        type=_jobs,
        default=os.cpu_count() or 1,
        help="how many runs go on at once, each in a process (default: one per core)",
    )
    _add_replay(parser)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    """What concerns a journal in place of a trace."""
    group = parser.add_argument_group("a recording in place of a trace")
    group.add_argument(
        "--replay",
        metavar="FILE",
        type=Path,
        help="decide a journal again: exactly as recorded, or with --profile its pods under "
        "another profile",
    )
    group.add_argument(
        "--until",
        metavar="NAMESPACE/POD",
        default="",
        help="stop behind the newest decision for a pod, and explain it",
    )


def run(options: argparse.Namespace) -> int:
    """Run every profile with every seed, or replay, print a table; returns the exit status.

    Raises:
        ConfigurationError: a file or a profile cannot be used.
        SchedulerError: a run broke.
    """
    if options.replay is not None:
        return _replay(options)
    _check_trace(options)
    if options.curve is not None:
        _check_writable(options.curve)
    from stellwerk_simulation.experiment import Experiment  # noqa: PLC0415 NumPy and the scheduler
    from stellwerk_simulation.report import table, write_curves  # noqa: PLC0415

    experiment = Experiment.read(options.nodes, options.pods, options.inflate)
    for remark in experiment.remarks():
        print(f"stellwerk: {remark}", file=sys.stderr)
    seeds = tuple(dict.fromkeys(options.seed or [_DEFAULT_SEED]))
    profiles = tuple(dict.fromkeys(options.profile))
    results = experiment.run(profiles, seeds, options.jobs)
    print(table(results))
    if options.curve is not None:
        write_curves(options.curve, results, experiment.until_pct)
    return 0


def _replay(options: argparse.Namespace) -> int:
    for name in ("nodes", "pods", "inflate", "curve"):
        if getattr(options, name) is not None:
            raise ConfigurationError(f"--{name} belongs to a trace, --replay reads a journal")
    if options.until and options.profile:
        raise ConfigurationError("--until explains a recorded decision: leave --profile out")
    from stellwerk_simulation.replay_command import replay  # noqa: PLC0415 the whole operator

    return replay(options)


def _check_trace(options: argparse.Namespace) -> None:
    missing = [f"--{name}" for name in ("nodes", "pods", "profile") if not getattr(options, name)]
    if missing:
        raise ConfigurationError(f"{', '.join(missing)}: needed for a trace; or --replay a journal")
    if options.until:
        raise ConfigurationError("--until goes with --replay")


def _check_writable(path: Path) -> None:
    if path.suffix not in _CURVE_KINDS:
        raise ConfigurationError(f"--curve {path}: the name must end in .csv or .json")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigurationError(f"--curve {path}: cannot be written there")


def _share(text: str) -> float:
    """A number above 0."""
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= _MOST_SHARE:
        message = f"{text!r} is not a number above 0 and up to {_MOST_SHARE:.0f}, such as 1.3"
        raise argparse.ArgumentTypeError(message)
    return share


def _seed(text: str) -> int:
    return _number(text, _MOST_SEED)


def _jobs(text: str) -> int:
    return _number(text, 1024)


def _number(text: str, most: int) -> int:
    """A whole number from 1 on."""
    number = int(text) if text.isdecimal() and len(text) <= len(str(most)) else 0
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return number
