"""While a gang is bound in part, no later pod of its priority has the room that the gang lacks.

Histories on full nodes of one core: single pods come and end, nodes come, bindings are refused,
and operators are killed between two bindings and followed by others.
"""

import asyncio
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk_kube.errors import ApiError
from tests.support.builders import make_node
from tests.support.successive_operators import PODS, Replicas, gang, singles, story

MEMBERS: Final = 5
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(1, 6)),
        st.tuples(st.just("end"), st.integers(0, 7)),
        st.tuples(st.just("refuse"), st.integers(0, MEMBERS - 1)),
        st.tuples(st.just("grow"), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from((0, 1, 9))),
    ),
    max_size=8,
)
SETTLED_SECONDS: Final = 15
"""Longer than the longest backoff, so that nothing is left to be tried."""


class Story:
    """The gang, the single pods, and what may be bound of them."""

    def __init__(self, replicas: Replicas, nodes: int) -> None:
        self._replicas = replicas
        self._nodes = nodes
        self._came = 0
        self._grown = 0
        self.before: set[str] = set()
        """Single pods that were bound when the gang was last whole, or not bound at all."""

    def come(self, count: int) -> None:
        for _ in range(count):
            self._came += 1
            self._replicas.leader.apply(*singles(f"a{self._came}", 1))

    def end(self, number: int) -> None:
        bound = sorted(self._bound("a"))
        if bound:
            self._replicas.leader.delete("Pod", bound[number % len(bound)])

    def refuse(self, number: int) -> None:
        path = f"{PODS}/m-{number}"
        if not self._replicas.leader.node_of(f"m-{number}"):
            error = ApiError("bind", 403, "Forbidden", "not this one")
            self._replicas.store.failures[f"{path}/binding"] = error

    def grow(self, _: int) -> None:
        self._grown += 1
        self._replicas.leader.apply(make_node(f"more-{self._grown}", cpu="1"))

    def kill(self, bindings: int) -> None:
        """End the operator at once, and its successor after so many bindings."""
        self._replicas.follow(first="am"[bindings % 2])
        self._replicas.store.bindings_left = bindings

    async def wait(self, seconds: int) -> None:
        await asyncio.sleep(seconds)

    def check(self) -> None:
        members = len(self._bound("m"))
        singles = self._bound("a")
        if not 0 < members < MEMBERS:
            self.before = singles
        elif singles - self.before:
            room = self._nodes + self._grown - len(singles)
            assert room >= MEMBERS, "a later pod has what the gang lacks"

    def _bound(self, beginning: str) -> set[str]:
        pods = [each for each in self._replicas.store.objects.values() if each["kind"] == "Pod"]
        return {
            pod["metadata"]["name"]
            for pod in pods
            if pod["metadata"]["name"].startswith(beginning) and pod["spec"].get("nodeName")
        }


@settings(max_examples=15)
@given(bindings=st.integers(1, MEMBERS - 1), older=st.integers(0, 2), steps=STEPS)
def test_no_later_pod_is_bound_while_a_gang_is_bound_in_part(
    bindings: int, older: int, steps: list[tuple[str, Any]]
) -> None:
    async def play(replicas: Replicas) -> None:
        told = Story(replicas, MEMBERS + older)
        replicas.leader.apply(*(make_node(f"n{each}", cpu="1") for each in range(MEMBERS + older)))
        told.come(older)
        await asyncio.sleep(1)
        told.check()
        await replicas.killed_after(bindings, *gang(size=MEMBERS))
        told.check()
        told.come(4)
        replicas.follow()
        for name, argument in steps:
            done = getattr(told, name)(argument)
            if done is not None:
                await done
            await asyncio.sleep(0.05)
            told.check()
        replicas.follow()
        for _ in range(SETTLED_SECONDS):
            await asyncio.sleep(1)
            told.check()
        assert replicas.bound("m") == MEMBERS, "the room was never anybody else's"

    story(play)
