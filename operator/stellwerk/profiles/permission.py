"""Whether this process may schedule the pods of a profile, or at most observe them.

`ProfileLoader` asks before a version serves; `app` says what the process is and runs `RightReview`
beside the scheduler. Invariant: a profile that schedules serves only while nothing here refuses it,
so no schedulerName is served by two schedulers, and no pod is decided that could not be bound.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stellwerk.client.reviews import may_itself
from stellwerk.framework.services import ClusterClient
from stellwerk.models.scheduling_spec import DEFAULT_SCHEDULER_NAME
from stellwerk.profiles.entry import BESIDE_KUBE_SCHEDULER, OBSERVE_ONLY, RIGHT_MISSING, Refusal
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk_kube.errors import ApiError

logger = logging.getLogger(__name__)

REVIEW_SECONDS: Final = 60.0
"""Pause between two questions to the API server while this process has the right to bind pods."""
MISSING_REVIEW_SECONDS: Final = 5.0
"""Pause while it lacks the right: a profile is accepted this much later than the right is given."""
MIN_REVIEW_SECONDS: Final = 1.0
"""Shortest pause between two questions, however many profiles are loaded."""
MAX_FIRST_ANSWER_SECONDS: Final = 5.0
"""Longest wait for the first answer. After it profiles serve: a binding shows a missing right."""
_RIGHT: Final = ("create", "", "v1", "pods", "binding")
"""Verb, group, version, resource and subresource of the right without which no pod is bound."""
_RIGHT_IN_WORDS: Final = "create pods/binding"


@dataclass(slots=True)
class SchedulingPermission:
    """The facts about this process by which profiles that schedule are refused; by default none."""

    observe_only: bool = False
    """Whether this process was started to observe, and can write nothing about pods."""
    is_only_scheduler: bool = True
    """Whether no kube-scheduler schedules while this process does: it holds kube-scheduler's lease
    then, or the cluster is its own."""
    missing_right: str = ""
    """The right that it lacks to bind pods; empty: it lacks none, as far as is known."""
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a version that schedules was loaded: the right is asked for again."""

    def refusal(self, profile: LoadedProfile) -> Refusal | None:
        """Return why a version may not schedule here; None: it may, or does not schedule."""
        spec = profile.spec
        if spec.shadow_of or profile.observes:
            return None
        if self.observe_only:
            return Refusal(
                OBSERVE_ONLY,
                "spec.mode: this operator was started with --observe and schedules no pods. Set "
                "mode: Observe; or first install it with the rights to schedule "
                "(manifests/overlays/observe left out; with Helm observe: false)",
            )
        field_ = _field_of_default_scheduler(profile)
        if field_ and not (self.is_only_scheduler or spec.allow_beside):
            return Refusal(
                BESIDE_KUBE_SCHEDULER,
                f"{field_}: kube-scheduler serves the pods of {DEFAULT_SCHEDULER_NAME}, and two "
                "schedulers of one name over-commit nodes. Let this operator wait for "
                "kube-scheduler's lease (manifests/overlays/in-place; with Helm "
                "takeOverDefaultScheduler: true), or set mode: Observe. If no kube-scheduler "
                "serves these pods, set allowBeside: true",
            )
        if self.missing_right:
            return Refusal(
                RIGHT_MISSING,
                f"spec.mode: the operator lacks the right to {self.missing_right} in all "
                "namespaces, so it could bind no pod. Give it the role of manifests/10-rbac.yaml "
                "(with Helm: observe: false), or set mode: Observe. The right is looked for again "
                "every few seconds",
            )
        return None


def _field_of_default_scheduler(profile: LoadedProfile) -> str:
    """Return the field by which a profile serves pods that name no scheduler; empty: none does."""
    if profile.scheduler_name == DEFAULT_SCHEDULER_NAME:
        return "spec.schedulerName"
    selected = profile.selected
    if selected is not None and DEFAULT_SCHEDULER_NAME in selected.scheduler_names:
        return "spec.selector"
    return ""


class RightReview:
    """Asks the API server from time to time whether this process may bind pods."""

    def __init__(
        self,
        permission: SchedulingPermission,
        client: ClusterClient,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called after `permission` has changed."""
        self._permission = permission
        self._client = client
        self._on_change = on_change

    async def first(self) -> None:
        """Ask before anything is scheduled; give up after a while, and go on without an answer."""
        try:
            async with asyncio.timeout(MAX_FIRST_ANSWER_SECONDS):
                await self.ask()
        except TimeoutError:
            logger.warning(
                "the API server has not said yet whether this operator may %s", _RIGHT_IN_WORDS
            )

    async def run(self) -> None:
        """Ask again, until cancelled: when a profile was loaded, else at long intervals."""
        permission = self._permission
        while True:
            await asyncio.sleep(MIN_REVIEW_SECONDS)
            pause_seconds = MISSING_REVIEW_SECONDS if permission.missing_right else REVIEW_SECONDS
            try:
                async with asyncio.timeout(pause_seconds - MIN_REVIEW_SECONDS):
                    await permission.wanted.wait()
            except TimeoutError:
                pass
            permission.wanted.clear()
            await self.ask()

    async def ask(self) -> None:
        """Ask once. Without an answer the last one counts, and before the first the right does."""
        try:
            may = await may_itself(self._client, *_RIGHT)
        except ApiError as error:
            logger.debug("whether pods may be bound is not known just now: %s", error)
            return
        missing = "" if may else _RIGHT_IN_WORDS
        if missing == self._permission.missing_right:
            return
        self._permission.missing_right = missing
        if missing:
            logger.error(
                "this operator lacks the right to %s: profiles with mode Schedule are refused",
                missing,
            )
        else:
            logger.info("this operator has the right to %s", _RIGHT_IN_WORDS)
        self._on_change()
