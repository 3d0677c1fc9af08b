"""The table of a controller's pods, those that wait by reason.

`stellwerk explain deployment/NAME` prints it, and the like for other controllers. Invariant: pods
that wait for the same reason share a line and one explanation.
"""

from typing import Final

from stellwerk.answers.words import counted
from stellwerk.answers.workload import WorkloadExplanation
from stellwerk_cli.commands.explained_pod import print_pod, print_releases, releases_of
from stellwerk_cli.commands.output import Shown
from stellwerk_cli.commands.printer import Printer

_MAX_EXAMPLES: Final = 3
"""Pods that are named for each reason."""


def print_workload(explanation: WorkloadExplanation, to: Printer) -> None:
    """A controller's pods, those that wait by reason."""
    of = f"{explanation.with_node} of {counted(explanation.pods, 'pod')} on nodes"
    to.say((explanation.workload, "bold"), f" in {explanation.namespace}: {of}")
    for each in explanation.waiting:
        left = len(each.pods) - _MAX_EXAMPLES
        more = f" and {left:,} more" if left > 0 else ""
        named = f"{', '.join(each.pods[:_MAX_EXAMPLES])}{more}"
        to.say()
        to.say((f"{counted(len(each.pods), 'pod')} ({named}): {each.reason}", "yellow"))
        if each.explanation is not None:
            print_pod(each.explanation, to)
    if not explanation.pods:
        to.say("It has no pods.")
    explained = (each.explanation for each in explanation.waiting)
    print_releases((r for each in explained if each is not None for r in releases_of(each)), to)


WORKLOAD: Final = Shown(
    WorkloadExplanation,
    print_workload,
    lambda answer: (pod for each in answer.waiting for pod in each.pods),
)
