"""The permit of a group: none of its bindings is asked of the API before enough can be.

Not the extension point Permit, whose waiting pods are in `waiting_pods_map`: this one stands after
PreBind. `SubmitGroupResult` makes it for the members that the group cycle placed, and their binding
cycles arrive at it; it stands alone since these are below the one and above the other. It has no
timeout. `BindingCycle` calls `lose` for every member whose binding fails before it arrives, and the
plugins' limits on Permit and PreBind bring each binding to an end. Invariant: once the first
binding of a group has been let through, all that arrive are; if too few can arrive, none is.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_BINDINGS_PER_ITERATION: Final = 32
"""Bindings of a group that go on in one iteration of the event loop; more would hold up events."""


class GroupPermit:
    """Counts the members that are ready to be bound, and those that no longer can be."""

    def __init__(self, members: int, needed: int, raised: Callable[[], int] = lambda: 0) -> None:
        """`needed`: the number of these members that are bound, or none is.

        `raised`: by how much the group asks for more members now than when it was decided.
        """
        self._left, self._needed = members, min(needed, members)
        self._raised = raised
        self._ready = 0
        self._answer: str | None = None
        """The reason why no member is bound, or an empty text; None: that is not decided."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._look()

    @property
    def is_decided(self) -> bool:
        """Whether `arrive` answers without waiting."""
        return self._answer is not None

    @property
    def is_given(self) -> bool:
        """Whether enough members were ready, so that those that arrive are bound."""
        return self._answer == ""

    async def arrive(self) -> str:
        """Count a ready member and wait for enough others; returns why it is not bound, or ""."""
        self._ready += 1
        self._look()
        if self._answer is None:
            permitted = asyncio.get_running_loop().create_future()
            self._waiting.append(permitted)
            await permitted
        return self._answer or ""

    def lose(self, reason: str) -> None:
        """Count a member that will not arrive."""
        self._left -= 1
        if self._left < self._needed and self._answer is None:
            self._decide(reason)

    def _look(self) -> None:
        if self._answer is not None:
            return
        needed = self._needed + max(0, self._raised())
        if needed > self._left:
            self._decide(f"the pod group asks for {needed} of these members now")
        elif self._ready >= needed:
            self._decide("")

    def _decide(self, answer: str) -> None:
        self._answer = answer
        self._let_through()

    def _let_through(self) -> None:
        for _ in range(min(MAX_BINDINGS_PER_ITERATION, len(self._waiting))):
            permitted = self._waiting.popleft()
            if not permitted.done():
                permitted.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._let_through)
