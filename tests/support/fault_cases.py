"""The kinds of faults that runs strike with: the rows of the fault matrix.

Those that a table can say lie in docs/faults, for practice, too. Invariant: every file
there is one of them.
"""

from typing import Final

from tests.support.fault_runs import EXAMPLES, Case, Disruption, example

LONG_OUTAGE: Final = "long-outage-without-history"


def _examples() -> dict[str, Case]:
    names = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    return {name: example(name) for name in names}


CASES: Final[dict[str, Case]] = {
    "nothing": Case("nothing"),
    **_examples(),
    "killed": Case("killed", disruptions=(Disruption("kill", (4, 7)),)),
    "told-to-end": Case("told to end", disruptions=(Disruption("terminate", (4, 7)),)),
    "paused": Case("paused", disruptions=(Disruption("pause", (0.3, 2)),)),
    "jumping-clock": Case("jumping clock", clock_jumps=True),
}
"""By the name of the file, or of what is done to the process."""
