"""The node that a bound pod would get if it came now, for pods that another scheduler bound.

The operator's port asks for it with pods that are observed, `reading` with those of a cluster that
was read once. Invariant: it is computed on a fork, on which the pod is not counted.
"""

from dataclasses import replace

import numpy as np

from stellwerk.answers.pod import (
    PlacementNow,
    PodExplanation,
    RankedNode,
    RecomputedExplanation,
    ScoreFields,
)
from stellwerk.explain.records import (
    MAX_SHOWN_NODES,
    kept_score,
    node_names,
    score_at,
)
from stellwerk.explain.report import Explanations, explain_attempt
from stellwerk.explain.steps import Steps, on_fork
from stellwerk.models.pod import PodInfo
from stellwerk.world.decide import Decision
from stellwerk.world.world import World


def explain_pod(
    explanations: Explanations, namespace: str, name: str
) -> Steps[PodExplanation] | None:
    """Explain a pod; None: there is none of that name.

    One that an observed scheduler has bound is explained with the node that it would get now.
    """
    found = explanations.pod(namespace, name)
    return None if found is None else _if_observed(explanations.world, found)


def _if_observed(world: World, steps: Steps[PodExplanation]) -> Steps[PodExplanation]:
    found = yield from steps
    if found.observing is None or found.state != "bound":
        return found
    return (yield from with_placement_now(world, found))


def with_placement_now(world: World, found: PodExplanation) -> Steps[PodExplanation]:
    """The explanation of a bound pod with the node that it would get if it came now."""
    pod = world.cache.pod(found.uid or "")
    if pod is None or pod.terminating:
        return found
    recomputed = yield from on_fork(world, lambda fork: _placed_now(fork, world, pod))
    if recomputed is None:
        return found
    now, placement = recomputed
    return replace(
        found,
        verdicts=now.verdicts,
        devices=found.devices or now.devices,
        gpus=found.gpus or now.gpus,
        would_get_node=now.would_get_node,
        tied=now.tied,
        tied_nodes=now.tied_nodes,
        would_wait=now.would_wait,
        preemption=now.preemption,
        would_fit=now.would_fit,
        plugins=now.plugins,
        left_out=now.left_out,
        placement_now=placement,
    )


def _placed_now(
    fork: World, live: World, pod: PodInfo
) -> Steps[tuple[RecomputedExplanation, PlacementNow | None] | None]:
    profile = fork.profiles.of(pod)
    if profile is None:
        return None
    own_node = pod.node_name
    unbound = pod.with_node("")
    now, tried = yield from explain_attempt(fork, unbound, profile, live)
    decision = None if tried is None else tried.decision
    if tried is None or decision is None:
        return now, None
    return now, placement(decision, tried.node_name, own_node)


def placement(decision: Decision, node_name: str, own_node: str) -> PlacementNow | None:
    """The best nodes of a decision with their points; None: it chose none."""
    if not decision.node_name:
        return None
    search = decision.search
    return PlacementNow(
        node=node_name,
        nodes=search.snapshot.node_count,
        feasible=decision.feasible,
        tied=1 if decision.best is None else len(decision.best),
        best=_ranked(decision, own_node),
    )


def _ranked(decision: Decision, own_node: str) -> list[RankedNode]:
    scores, total = decision.scores, decision.total
    if scores is None or total is None:
        return []
    order = np.argsort(-total, kind="stable")
    positions = order[:MAX_SHOWN_NODES]
    names = list(node_names(decision.search, scores, positions))
    if own_node not in names:
        rest = order[MAX_SHOWN_NODES:]
        others = list(node_names(decision.search, scores, rest))
        if own_node in others:
            positions = np.append(positions, rest[others.index(own_node)])
            names.append(own_node)
    kept = [kept_score(each, positions) for each in scores.by_plugin]
    found = []
    for position, (name, points) in enumerate(zip(names, total[positions].tolist(), strict=True)):
        by_plugin = {}
        for score in kept:
            plugin, weight, *_ = score
            raw, normalized = score_at(score, position)
            by_plugin[plugin] = ScoreFields(
                raw=raw, normalized=normalized, weighted=normalized * weight
            )
        rank = 1 + int((total > points).sum())
        found.append(RankedNode(node=name, rank=rank, total=points, scores=by_plugin))
    return found
