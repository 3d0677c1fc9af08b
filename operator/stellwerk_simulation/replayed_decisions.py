"""Decisions made again from what was recorded of them: random numbers, and extenders' answers.

Replays use it. Invariant: a decision that waited for extenders goes on exactly where their answers
came, so that it sees what had changed by then.
"""

from collections import deque

from typing_extensions import override

from stellwerk.errors import SchedulerError
from stellwerk.framework.handle import RandomNumbers
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.world.decide import Decision
from stellwerk.world.extender_answers import Answer, AnswersMissing, ReplayedExtenders
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World


class ScriptedNumbers(RandomNumbers):
    """Gives the numbers that were drawn when the decision was recorded."""

    def __init__(self) -> None:
        self.draws: deque[tuple[int, int]] = deque()

    @override
    def randrange(self, stop: int, /) -> int:
        if not self.draws or self.draws[0][1] != stop:
            # By Reserve, which is no part of a decision; or the decision differs, and is compared.
            return 0
        return min(self.draws.popleft()[0], stop - 1)


class Asking:
    """A decision of a profile with extenders; goes on with each answer."""

    def __init__(
        self, world: World, pod: PodInfo, profile: ServedProfile, state: CycleState | None = None
    ) -> None:
        """Decide up to the first question, if there is any."""
        self._deciding = decide_with_extenders(
            world, pod, profile, ReplayedExtenders(), state or CycleState()
        )
        self.decision: Decision | None = None
        self.failure = ""
        """Why there is no decision; empty as long as there may be one."""
        self._step(None)

    @property
    def is_over(self) -> bool:
        """Whether it asks no more."""
        return self.decision is not None or bool(self.failure)

    def answer(self, answer: Answer) -> None:
        """Go on with an answer; nothing happens where none is waited for."""
        if not self.is_over:
            self._step(answer)

    def end(self) -> Decision | None:
        """The decision; None: it asks more than was recorded, or failed, as `failure` says."""
        if not self.is_over:
            self._deciding.close()
            self.failure = "the recorded decision asked its extenders less"
        return self.decision

    def _step(self, answer: Answer) -> None:
        try:
            self._deciding.send(answer)
        except StopIteration as ended:
            self.decision = ended.value
        except (SchedulerError, AnswersMissing) as failure:
            self.failure = str(failure) or type(failure).__name__
