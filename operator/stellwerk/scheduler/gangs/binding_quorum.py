"""Bindings of one group begin together: none is asked of the API before enough can be.

The group cycle makes one for the members that it placed, binding cycles arrive at it after PreBind.
Invariant: once the first binding of a group has been let through, all that arrive are; if too few
can arrive, none is.
"""

import asyncio


class BindingQuorum:
    """Counts the members that are ready to be bound, and those that no longer can be."""

    def __init__(self, members: int, needed: int) -> None:
        """`needed`: of these members, so many are bound or none."""
        self._left, self._needed = members, min(needed, members)
        self._ready = 0
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._look()

    @property
    def is_decided(self) -> bool:
        """Whether `arrive` answers without waiting."""
        return self._answer.done()

    async def arrive(self) -> str:
        """One member is ready: wait for enough others; why it is not bound, or an empty text."""
        self._ready += 1
        self._look()
        return await asyncio.shield(self._answer)

    def lose(self, reason: str) -> None:
        """One member will not arrive."""
        self._left -= 1
        if self._left < self._needed and not self._answer.done():
            self._answer.set_result(reason)

    def _look(self) -> None:
        if self._ready >= self._needed and not self._answer.done():
            self._answer.set_result("")
