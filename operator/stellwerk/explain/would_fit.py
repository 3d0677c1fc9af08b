"""The smallest changes that would make a pod fit (`wouldFit`), found by trying.

Explanations run it on a fork of the World, a step at a time (`explain.report.explain_attempt`).
Plugins propose changes (`PluginsAsked`, `propose` in `framework.interface`); most deletions of pods
in the way the search makes itself (`PodsInTheWay`, `_deletion`). Each is a `Change` of
`framework.changes` with its cost; `WouldFit.search` tries them, `suggested_edits` those of objects;
what helped alike becomes one suggestion in words. A new kind of suggestion is a proposal of its
plugin, and a Change where none of those there says it (its docstring lists what it needs). Order of
cost: fewer changes before more; among equally many, the order of `changes.Cost`; then smaller
amounts. Invariant: nothing is suggested that was not made in a trial and decided anew, every object
that is named was tried on its own, and no suggestion holds all changes of another.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, product
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from stellwerk.answers.suggestion import ChangeFields, Suggestion
from stellwerk.explain.proposals import PluginsAsked
from stellwerk.explain.steps import Steps
from stellwerk.framework.changes import (
    Change,
    DeletePod,
    EditObject,
    EditPod,
    FreeResources,
    GrowNode,
    Tolerate,
    amounts_text,
    lacking,
)
from stellwerk.framework.filter_results import FilterResults
from stellwerk.framework.types import CycleState, PluginFailure
from stellwerk.models.eviction_budgets import EvictionBudgets
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import SpreadConstraint
from stellwerk.models.scheduling_spec import PREEMPT_LOWER_PRIORITY, PREEMPT_NEVER
from stellwerk.plugins.shared.pod_resource_claims import held_claims, suppose_released
from stellwerk.snapshot.columns import RowColumn
from stellwerk.snapshot.pair_terms import (
    SpreadSelection,
    matches_as_existing,
    matches_as_incoming,
)
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk.world.decide import decide, find_nodes
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.compatibility import Compatibility, ReleaseRule

if TYPE_CHECKING:
    from stellwerk.framework.types import FilterResult


# --- suggestions in words -------------------------------------------------------------------------

ClosedDomain: TypeAlias = tuple[SpreadConstraint, str]
"""A constraint, and the value of its topology key where it lets no pod in."""
MIN_LIKELY_SHARE: Final = 0.5
"""Share of a request with which a pod probably works; below it, other changes come first."""
_MAX_NAMED_OBJECTS: Final = 2
"""Objects that one suggestion names. Further ones are counted."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Changes that were made together, after which the pod fitted."""

    changes: tuple[Change, ...]
    node_count: int
    """Number of nodes that took the pod then."""
    node_names: tuple[str, ...]
    """Some of these nodes."""
    closed: ClosedDomain | None = None
    """The domain that the changes open; None: they say themselves what they do."""

    @property
    def reason(self) -> str:
        """The reason for which as many pods have to go as do; empty where no pod has to."""
        if self.closed is None:
            return ""
        constraint, value = self.closed
        count = len(self.changes)
        pods = "1 pod" if count == 1 else f"{count} pods"
        key, skew = constraint.topology_key, constraint.max_skew
        return f"{pods} too many in {key}={value} for maxSkew {skew}"

    @property
    def is_unlikely(self) -> bool:
        """Whether a request is cut so far that the pod is unlikely to work."""
        return any(
            isinstance(change, EditPod) and change.share < MIN_LIKELY_SHARE
            for change in self.changes
        )

    @property
    def sort_key(self) -> tuple[object, ...]:
        """Fewer changes first, then cheaper ones, then smaller ones."""
        costs = sorted(change.cost for change in self.changes)
        sizes = [
            amount
            for change in self.changes
            if isinstance(change, FreeResources)
            for _, amount in change.amounts
        ]
        forbidden = sum(
            isinstance(change, DeletePod) and bool(change.budget) for change in self.changes
        )
        return (len(self.changes), costs, forbidden, sizes, -self.node_count)


@dataclass(slots=True)
class AlikeProofs:
    """One way to make the pod fit, and objects to which alike changes would do as well."""

    proof: Proof
    others: list[Proof] = field(default_factory=list)
    looked_at: int = 0
    """Number of nodes on which changes were tried."""
    nodes: int = 0
    """Number of all nodes."""

    @property
    def text(self) -> str:
        """The suggestion in one line."""
        words = " and ".join(change.describe() for change in self.proof.changes)
        if self.proof.reason:
            words = f"{self.proof.reason}: {words}"
        if self.others:
            named = [
                _alternative(self.proof, other) for other in self.others[: _MAX_NAMED_OBJECTS - 1]
            ]
            left = len(self.others) - len(named)
            words += "".join(f", {each}" for each in named)
            if left and self.looked_at < self.nodes:
                # On the others it is not known.
                would_do = len(self.others) + 1
                words += (
                    f" or another: {would_do} would work, of {self.looked_at} tried among "
                    f"{self.nodes:,} nodes"
                )
            elif left:
                words += f" or {left:,} more"
                if isinstance(self.proof.changes[0], FreeResources):
                    # Beside amounts "1 more" could be one more of these.
                    words += " node" if left == 1 else " nodes"
            else:
                # The last of the names stands after "or", in place of the comma.
                words = f"{words[: -len(named[-1]) - 2]} or {named[-1]}"
        elif len(self.proof.changes) == 1 and isinstance(self.proof.changes[0], Tolerate):
            count = self.proof.node_count
            words += f" → {count} node{'s' if count != 1 else ''}"
        return words

    def answer(self) -> Suggestion:
        """The suggestion as it is answered."""
        return Suggestion(
            text=self.text,
            reason=self.proof.reason or None,
            changes=[change.fields() for change in self.proof.changes],
            feasible_nodes=self.proof.node_count,
            nodes=list(self.proof.node_names),
            alternatives=[[change.fields() for change in each.changes] for each in self.others],
        )


def grouped(proofs: Iterable[Proof]) -> list[AlikeProofs]:
    """Suggestions, the likeliest first and then by cost; none holds all changes of another.

    A pod that gets less than half of its request is unlikely to work: such suggestions come last,
    even if they are a single change.
    """
    by_group: dict[tuple[tuple[str, ...], ...], AlikeProofs] = {}
    least: list[frozenset[Change]] = []
    for proof in sorted(proofs, key=lambda each: each.sort_key):
        changes = frozenset(proof.changes)
        if any(smaller <= changes for smaller in least):
            continue
        least.append(changes)
        key = tuple(sorted(change.group for change in proof.changes))
        known = by_group.get(key)
        if known is None:
            by_group[key] = AlikeProofs(proof)
        else:
            known.others.append(proof)
    return sorted(by_group.values(), key=lambda each: each.proof.is_unlikely)


def _alternative(first: Proof, other: Proof) -> str:
    """Another object, with the amount where that differs."""
    if len(other.changes) > 1:
        return " and ".join(change.describe() for change in other.changes)
    change, known = other.changes[0], first.changes[0]
    if isinstance(change, FreeResources) and isinstance(known, FreeResources):
        same = change.amounts == known.amounts
        preposition = "to" if isinstance(change, GrowNode) else "on"
        amounts = "" if same else f"{amounts_text(dict(change.amounts))} {preposition} "
        return f"{amounts}{change.target}"
    return change.target


# --- the search -----------------------------------------------------------------------------------

_MAX_NEAR_NODES: Final = 32
"""Nodes of a large cluster on which changes are tried: those that fewest plugins turn away."""
_MAX_TRIES: Final = 96
"""Changes on their own that are tried in a large cluster, and as many deletions of pods."""
_MAX_SMALL_CLUSTER_NODES: Final = 64
"""Nodes of a small cluster: changes are tried on all of them."""
_MAX_TRIES_IN_SMALL_CLUSTER: Final = 600
"""Changes on their own that are tried in a small cluster, and as many deletions of pods."""
_MAX_NODES_TOGETHER: Final = 6
"""Nodes on which several changes are tried together."""
_MAX_TRIES_TOGETHER: Final = 60
"""Tries of several changes together after which no other combination is begun."""
_MAX_CHANGES_TOGETHER: Final = 6
"""Changes in one suggestion. More changes that only help together are not suggested."""
_MAX_PODS_LEAVING: Final = 16
"""Pods of one node that are deleted together in one try."""
_MAX_CHANGES_PER_PLUGIN: Final = 2
"""Changes of each plugin that are combined with those of others, the cheapest first."""
_MAX_NODES_PER_SUGGESTION: Final = 5
"""Nodes that a suggestion names of those that would take the pod."""
_SPREAD: Final = "PodTopologySpread"
_DOMAIN_PLUGINS: Final = frozenset({"InterPodAffinity", _SPREAD})
_MAX_DOMAINS: Final = 4
"""Domains of spread constraints for which deletions of pods are tried."""


def filter_results(
    world: World, pod: PodInfo, profile: ServedProfile
) -> Generator[None, None, FilterResults]:
    """Ask every plugin about every node, one after the other.

    Raises:
        PluginFailure: a plugin raised.
    """
    search = find_nodes(world, pod, profile, thorough=True)
    yield
    found, snapshot, framework = search.found, search.snapshot, profile.framework
    rows = np.array(list(snapshot.row_of.values()), np.intp)
    results: dict[str, FilterResult] = {}
    if found.pre_filter.ok:
        view = NodeView(snapshot, rows)
        for plugin, result in framework.filters.each(found.state, pod, view):
            results[plugin.name] = result
            yield
    diagnosis = framework.filtering.diagnose(found, pod)
    every = FilterResults(found, rows, results, diagnosis)
    every.keep_in(found.state)
    return every


class WouldFit:
    """The search for one pod on one fork; `search` goes on step by step, `suggestions` are read."""

    def __init__(self, world: World, pod: PodInfo, profile: ServedProfile) -> None:
        self._world = world
        self._pod = pod
        self._profile = profile
        self._snapshot = world.cache.snapshot
        self._in_the_way = PodsInTheWay(self._snapshot, pod, profile.compatibility)
        self._budgets = EvictionBudgets(world.objects.list("PodDisruptionBudget"))
        self._tried: set[frozenset[Change]] = set()
        self._proofs: list[Proof] = []
        self._asked: PluginsAsked
        """As `search` gets or makes it."""
        self.eviction: tuple[str, ...] = ()
        """Pods whose eviction would do, which preemptionPolicy Never rules out."""
        self.eviction_node = ""
        self._looked_at = 0

    @property
    def suggestions(self) -> list[AlikeProofs]:
        """The suggestions, the cheapest first."""
        found = grouped(self._proofs)
        for each in found:
            each.looked_at, each.nodes = self._looked_at, self._snapshot.node_count
        return found

    def search(
        self, found: FilterResults | None = None, asked: PluginsAsked | None = None
    ) -> Iterator[None]:
        """Try changes; each step takes about as long as one decision.

        `found`: what plugins say of the nodes, if they were asked already, and `asked` they.

        Raises:
            PluginFailure: a plugin raised.
        """
        if found is None:
            found = yield from filter_results(self._world, self._pod, self._profile)
        if found.fits.any():
            return
        state = found.found.state
        self._asked = asked or PluginsAsked(self._snapshot, self._pod, self._profile, state)
        near = self._nearest(found)
        self._looked_at = len(near)
        yield
        yield from self._of_pod(found, near)
        yield from self._alone(found, near)
        if not self._proofs:
            yield from self._together(found, near)
        if any(proof.is_unlikely for proof in self._proofs):
            yield from self._with_smaller_cuts(found, near)
        yield from self._if_it_might_preempt()

    # --- one change -----------------------------------------------------------------------------

    def _nearest(self, found: FilterResults) -> list[int]:
        """Positions of the nodes that fewest plugins turn away, those with least lacking first."""
        if not found.results:
            return []
        fails = found.fails
        order = np.argsort(fails, kind="stable")
        if len(order) > _MAX_SMALL_CLUSTER_NODES:
            order = order[: 8 * _MAX_NEAR_NODES]
        lacking = {int(at): self._lacking(int(found.rows[at])) for at in order}
        ranked = sorted(lacking, key=lambda at: (int(fails[at]), lacking[at]))
        return ranked if len(fails) <= _MAX_SMALL_CLUSTER_NODES else ranked[:_MAX_NEAR_NODES]

    def _lacking(self, row: int) -> float:
        """The amounts that the node lacks, as shares of what the pod wants."""
        wanted = self._pod.amounts.requests
        return sum(
            amount / max(1, wanted.get(resource, 1))
            for resource, amount in lacking(self._snapshot, row, self._pod).items()
        )

    def _of_pod(self, found: FilterResults, near: Sequence[int]) -> Iterator[None]:
        fails = found.fails
        nearest = [at for at in near if fails[at] == fails[near[0]]]
        yield from self._asked.ask_about_pod(found.rows[nearest])
        for change in self._asked.of_pod():
            self._try((change,))
            yield

    def _alone(self, found: FilterResults, near: Sequence[int]) -> Iterator[None]:
        is_small = len(found.rows) <= _MAX_SMALL_CLUSTER_NODES
        tries = _MAX_TRIES_IN_SMALL_CLUSTER if is_small else _MAX_TRIES
        limit = len(self._tried) + tries
        for at in near:
            for _, change in self._asked.for_node(int(found.rows[at]), found.failing(at)):
                if len(self._tried) < limit and self._try((change,)) is not None:
                    yield
            yield  # proposals for one node may take a while, too
        in_the_way = self._in_the_way
        if any(
            np.any(found.results[name].codes) for name in _DOMAIN_PLUGINS & found.results.keys()
        ):
            yield from in_the_way.gather()
            yield from self._thinned(found, near)
        limit = len(self._tried) + tries
        for at in near:
            for other in in_the_way.for_row(int(found.rows[at])):
                if len(self._tried) < limit and self._try((self._deletion(other),)) is not None:
                    yield

    # --- several changes ------------------------------------------------------------------------

    def _thinned(self, found: FilterResults, near: Sequence[int]) -> Iterator[None]:
        """For domains that only a spread constraint closes: so many pods less as they are over."""
        tried: set[ClosedDomain] = set()
        for at in near:
            if found.failing(at) != [_SPREAD]:
                continue
            for constraint, value, pods in self._in_the_way.counted_beside(int(found.rows[at])):
                if (constraint, value) in tried or len(tried) >= _MAX_DOMAINS:
                    continue
                tried.add((constraint, value))
                before = len(self._proofs)
                for count in range(1, min(_MAX_CHANGES_TOGETHER, len(pods)) + 1):
                    leaving = tuple(map(self._deletion, pods[:count]))
                    yield from self._smallest(leaving, (constraint, value))
                    if len(self._proofs) > before:
                        break

    def _together(self, found: FilterResults, near: Sequence[int]) -> Iterator[None]:
        """For each near node a change for every plugin that turns it away, less the needless."""
        status = found.found.pre_filter
        if not status.ok:
            yield from self._smallest(tuple(self._asked.edits_for(status.plugin)))
        limit = len(self._tried) + _MAX_TRIES_TOGETHER
        for at in near[:_MAX_NODES_TOGETHER]:
            row = int(found.rows[at])
            by_plugin: dict[str, list[Change]] = {name: [] for name in found.failing(at)}
            for plugin, change in self._asked.for_node(row, list(by_plugin)):
                by_plugin[plugin].append(change)
            for plugin, changes in by_plugin.items():
                changes.extend(self._asked.edits_for(plugin))
            options = [
                sorted(changes, key=lambda each: each.cost)[:_MAX_CHANGES_PER_PLUGIN]
                for changes in by_plugin.values()
                if changes
            ]
            leaving = [self._deletion(other) for other in self._in_the_way.for_row(row)]
            for choice in product(*options):
                if len(self._tried) < limit:
                    yield from self._smallest(tuple(dict.fromkeys(choice)))
            if len(self._tried) < limit:
                cheapest = [changes[0] for changes in options]
                together = (*leaving[:_MAX_PODS_LEAVING], *cheapest)
                yield from self._smallest(tuple(dict.fromkeys(together)))

    def _with_smaller_cuts(self, found: FilterResults, near: Sequence[int]) -> Iterator[None]:
        """For each near node a smaller cut of the request, with a change for each other plugin.

        A node with more room may turn the pod away for another reason, such as a taint.
        """
        for at in near[:_MAX_NODES_TOGETHER]:
            row = int(found.rows[at])
            cuts = [
                each
                for each in self._asked.requests_for(row)
                if isinstance(each, EditPod) and each.share >= MIN_LIKELY_SHARE
            ]
            cheapest: dict[str, Change] = {}
            for plugin, change in self._asked.for_node(row, found.failing(at)):
                if not isinstance(change, FreeResources) and (
                    plugin not in cheapest or change.cost < cheapest[plugin].cost
                ):
                    cheapest[plugin] = change
            if cuts:
                yield from self._smallest((*cheapest.values(), *cuts))

    def _smallest(
        self, changes: tuple[Change, ...], closed: ClosedDomain | None = None
    ) -> Iterator[None]:
        """If the changes help together, leave out one after the other for as long as they do."""
        before = len(self._proofs)
        helps = self._try(changes, closed)
        yield
        if not helps:
            return
        left = changes
        for change in sorted(changes, key=lambda each: -each.cost):
            fewer = tuple(each for each in left if each is not change)
            helps = bool(fewer) and self._try(fewer, closed)
            yield
            if helps:
                left = fewer
        # Only what cannot be smaller is a suggestion.
        self._proofs[before:] = [proof for proof in self._proofs[before:] if proof.changes == left]
        if len(left) > _MAX_CHANGES_TOGETHER:
            del self._proofs[before:]

    # --- preemption -----------------------------------------------------------------------------

    def _if_it_might_preempt(self) -> Iterator[None]:
        """Find the pods whose eviction would do if the pod were allowed to preempt."""
        pod = self._pod
        if pod.spec.preemption_policy != PREEMPT_NEVER:
            return
        allowed = replace(pod.spec, preemption_policy=PREEMPT_LOWER_PRIORITY)
        decision = decide(self._world, replace(pod, spec=allowed), self._profile)
        yield
        candidate = decision.candidate
        if candidate is None:
            return
        with self._world.trial() as trial:
            trial.remove_pods(candidate.victims)
            found = find_nodes(self._world, pod, self._profile, thorough=True).found
            row = self._snapshot.row_of[candidate.node_name]
            if found.fits[row]:
                self.eviction = tuple(victim.key for victim in candidate.victims)
                self.eviction_node = candidate.node_name
        yield

    # --- trying ---------------------------------------------------------------------------------

    def _deletion(self, other: PodInfo) -> DeletePod:
        """The change that lets a pod go, with what it holds, and what forbids that."""
        claims = held_claims(self._world.objects, other)
        refusal = self._budgets.refusing(other)
        return DeletePod(
            other,
            tuple(claim["metadata"]["name"] for claim in claims),
            "" if refusal is None else refusal[0],
        )

    def _try(self, changes: tuple[Change, ...], closed: ClosedDomain | None = None) -> bool | None:
        """Whether a node takes the pod after these changes; None: they were tried already."""
        together = frozenset(changes)
        if together in self._tried:
            return None
        self._tried.add(together)
        pod = self._pod
        with ExitStack() as released, self._world.trial() as trial:
            try:
                for change in changes:
                    pod = change.apply(trial, self._snapshot, pod)
                    if isinstance(change, DeletePod) and change.claims:
                        suppose_released(self._world.objects, change.pod, released)
            except PluginFailure as failure:
                self._asked.leave_out(failure)
                return False
            fits = find_nodes(self._world, pod, self._profile, thorough=True).found.fits
            rows = np.flatnonzero(fits)
            if not len(rows):
                return False
            names = tuple(self._snapshot.names(rows[:_MAX_NODES_PER_SUGGESTION].tolist()))
        self._proofs.append(Proof(changes, len(rows), names, closed))
        return True


# --- pods that have to go -------------------------------------------------------------------------

_MAX_PODS_PER_STEP: Final = 1000
"""Placed pods that are looked at before yielding."""
_MAX_PODS_PER_NODE: Final = 110
"""Pods that are tried as deletions for one node; 110 is the kubelet's default of `maxPods`."""


class PodsInTheWay:
    """Pods by the domain that they keep the pending one out of, once `gather` is through."""

    def __init__(self, snapshot: Snapshot, pod: PodInfo, rules: Compatibility) -> None:
        """`rules`: the release that the pod's profile follows."""
        self._snapshot = snapshot
        self._pod = pod
        self._rules = rules
        self._by_domain: dict[tuple[str, str], dict[str, PodInfo]] = {}
        """(topology key, value) → pods by uid."""
        self._spread: dict[tuple[SpreadConstraint, str], list[PodInfo]] = {}
        """(constraint of the pending pod, value of its topology key) → pods that it counts."""

    def gather(self) -> Iterator[None]:
        """Look at every placed pod; comes up for air now and then."""
        looked_at = 0
        for row in self._snapshot.row_of.values():
            for other in self._snapshot.pods[row].values():
                self._place(row, other)
            looked_at += len(self._snapshot.pods[row])
            if looked_at >= _MAX_PODS_PER_STEP:
                looked_at = 0
                yield

    def for_row(self, row: int) -> list[PodInfo]:
        """The pods that could make room by leaving: of low priority first."""
        found = dict(self._snapshot.pods[row])
        labels = self._snapshot.node_at(row).labels
        for (key, value), pods in self._by_domain.items():
            if labels.get(key) == value:
                found |= pods
        ordered = sorted(found.values(), key=lambda each: (each.priority, each.key))
        return ordered[:_MAX_PODS_PER_NODE]

    def counted_beside(self, row: int) -> Iterator[tuple[SpreadConstraint, str, list[PodInfo]]]:
        """(constraint, domain of the row, pods that are counted there, low priorities first)."""
        labels = self._snapshot.node_at(row).labels
        for (constraint, value), pods in self._spread.items():
            if labels.get(constraint.topology_key) == value:
                yield constraint, value, sorted(pods, key=lambda each: (each.priority, each.key))

    def _place(self, row: int, other: PodInfo) -> None:
        labels = self._snapshot.node_at(row).labels
        keys = self._keys(other)
        for constraint in self._counting(other):
            key = constraint.topology_key
            keys.add(key)
            if key in labels:
                self._spread.setdefault((constraint, labels[key]), []).append(other)
        for key in keys & labels.keys():
            self._by_domain.setdefault((key, labels[key]), {})[other.uid] = other

    def _keys(self, other: PodInfo) -> set[str]:
        """The topology keys over which affinity keeps a pod and the pending one apart."""
        pod, namespaces = self._pod, self._snapshot.pair_counts.namespaces
        keys = {
            term.topology_key
            for term in other.spec.pod_affinity.required_anti
            if matches_as_existing(term.matcher, pod.label_set, namespaces)
        }
        reads_once = ReleaseRule.READ_NAMESPACES_ONCE in self._rules
        for term in pod.spec.pod_affinity.required_anti:
            if matches_as_incoming(
                term.matcher, other.label_set, namespaces, reads_once=reads_once
            ):
                keys.add(term.topology_key)
        return keys

    def _counting(self, other: PodInfo) -> Iterator[SpreadConstraint]:
        """The hard constraints of the pending pod that count another one."""
        pod, namespaces = self._pod, self._snapshot.pair_counts.namespaces
        for constraint in pod.spec.spread_constraints:
            if constraint.hard and constraint.selector is not None:
                selection = SpreadSelection.of(pod.namespace, constraint.selector, self._rules)
                if selection.matches(other.label_set, namespaces):
                    yield constraint


# --- edits of objects, in pairs if none helps alone -----------------------------------------------

_MAX_EDIT_TRIES: Final = 48
"""Edits that are tried alone, and pairs of edits that are tried if none helps alone."""
_ENDED_SLICE_SECONDS: Final = -1.0
"""Length of a slice that ends with the first node: the caller decides when to yield."""


def searched(world: World, pod: PodInfo, profile: ServedProfile) -> Iterator[None]:
    """Search the nodes for a pod's devices step by step, so that asking about it is quick."""
    if not pod.spec.resource_claims and not pod.extended_requests:
        return
    state = CycleState()
    state.slice_seconds = _ENDED_SLICE_SECONDS
    find_nodes(world, pod, profile, state, thorough=True)
    if state.unfinished is not None:
        yield from state.unfinished


def suggested_edits(
    world: World, pod: PodInfo, profile: ServedProfile, edits: Sequence[EditObject]
) -> Steps[list[Suggestion]]:
    """The edits that help, in the order in which they were proposed.

    Raises:
        PluginFailure: a plugin raised.
    """
    tries = _Tries(world, pod, profile)
    yield from tries.run([(edit,) for edit in edits[:_MAX_EDIT_TRIES]])
    if not tries.found:
        yield from tries.run(list(islice(combinations(edits, 2), _MAX_EDIT_TRIES)))
    return tries.found


class _Tries:
    def __init__(self, world: World, pod: PodInfo, profile: ServedProfile) -> None:
        self._world = world
        self._pod = pod
        self._profile = profile
        self._helped: set[str] = set()
        self.found: list[Suggestion] = []

    def run(self, choices: Iterable[Sequence[EditObject]]) -> Iterator[None]:
        """Try each, and keep what helps."""
        for edits in choices:
            groups = {edit.group for edit in edits} - {""}
            if groups & self._helped:
                continue
            rows = yield from self._rows(edits)
            if len(rows):
                self._helped |= groups
                self.found.append(self._suggestion(edits, rows))
            yield

    def _rows(self, edits: Sequence[EditObject]) -> Steps[RowColumn]:
        """The rows that take the pod after the edits; the objects are as before then."""
        before = {(edit.object_kind, edit.target): edit.obj for edit in edits}
        after = deepcopy(before)
        for edit in edits:
            edit.edit(after[edit.object_kind, edit.target])
        objects = self._world.objects
        try:
            for (kind, _), obj in after.items():
                objects.set(kind, obj)
            yield from searched(self._world, self._pod, self._profile)
            found = find_nodes(self._world, self._pod, self._profile, thorough=True).found
        finally:
            for (kind, _), obj in before.items():
                objects.set(kind, obj)
        return np.flatnonzero(found.fits)

    def _suggestion(self, edits: Sequence[EditObject], rows: RowColumn) -> Suggestion:
        changes = [
            ChangeFields(kind=edit.kind, claim=edit.target, change=edit.text) for edit in edits
        ]
        return Suggestion(
            text=" and ".join(edit.text for edit in edits),
            changes=changes,
            feasible_nodes=len(rows),
            nodes=self._world.cache.snapshot.names(rows[:_MAX_NODES_PER_SUGGESTION].tolist()),
            alternatives=[],
        )
