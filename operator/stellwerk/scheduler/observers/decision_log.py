"""Decisions in the log: one line at debug, and at trace every verdict and score.

The scheduling coroutine calls it only where debug is on. Invariant: a decision is read, not made;
verdicts that it did not need are asked for on the snapshot it was made on.
"""

import logging
from collections.abc import Iterator
from typing import Final

from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.score_phase import Scores
from stellwerk.framework.types import CODE_NAMES, PluginFailure
from stellwerk.logs import TRACE
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.world.decide import Decision, Failure
from stellwerk_kube.untrusted_text import shown

logger = logging.getLogger(__name__)

_NO_FILTER: Final = "no filter"


def log_decision(pod: PodInfo, profile_name: str, decision: Decision | Failure) -> None:
    """Write what was decided; at trace also why, node by node."""
    if isinstance(decision, Failure):
        _line(pod, profile_name, "error", f"not tried: {shown(decision.message)}")
        return
    search = decision.search
    counts = {"evaluated": search.found.evaluated, "feasible": decision.feasible}
    looked = f"{counts['evaluated']} nodes evaluated, {counts['feasible']} feasible"
    failure = decision.failure
    if failure is None:
        text = f"goes to {decision.node_name} ({looked})"
        _line(pod, profile_name, "scheduled", text, node=decision.node_name, **counts)
    elif decision.candidate is not None:
        node_name, victims = decision.candidate.node_name, len(decision.candidate.victims)
        text = f"waits for {victims} victims on {node_name} ({looked}): {shown(failure.message)}"
        _line(pod, profile_name, "nominated", text, node=node_name, **counts)
    else:
        result = "unschedulable" if failure.rejected else "error"
        _line(pod, profile_name, result, f"{result} ({looked}): {shown(failure.message)}", **counts)
    if logger.isEnabledFor(TRACE):
        _trace(pod, decision)


def _line(pod: PodInfo, profile_name: str, result: str, text: str, **more: object) -> None:
    fields = {"pod": pod.key, "profile": profile_name, "result": result, **more}
    logger.debug("%s %s", pod.key, text, extra=fields)


def _trace(pod: PodInfo, decision: Decision) -> None:
    """Write every node's verdict, then its scores where there was something to choose."""
    search = decision.search
    diagnosis = decision.diagnosis
    if diagnosis is None:
        try:
            diagnosis = search.profile.framework.filtering.diagnose(search.found, pod)
        except PluginFailure as failure:
            logger.log(TRACE, "%s: the other nodes' verdicts are not known: %s", pod.key, failure)
            return
    _trace_verdicts(pod, diagnosis, search.snapshot)
    if decision.scores is not None:
        _trace_scores(pod, decision.scores, search.snapshot)


def _trace_verdicts(pod: PodInfo, diagnosis: Diagnosis, snapshot: Snapshot) -> None:
    for name, status in zip(snapshot.names(diagnosis.rows), diagnosis.statuses, strict=True):
        if status.ok:
            logger.log(TRACE, "%s -> %s: fits", pod.key, name, extra={"pod": pod.key, "node": name})
            continue
        reasons = shown("; ".join(status.reasons))
        fields = {"pod": pod.key, "node": name, "plugin": status.plugin, "reasons": reasons}
        code, plugin = CODE_NAMES[status.code], status.plugin or _NO_FILTER
        message = "%s -> %s: %s says %s: %s"
        logger.log(TRACE, message, pod.key, name, plugin, code, reasons, extra=fields)


def _trace_scores(pod: PodInfo, scores: Scores, snapshot: Snapshot) -> None:
    """Write a line for each plugin on each node, with what the node has, and one for each total."""
    rows = scores.nodes.row_numbers().tolist()
    names = snapshot.names(scores.nodes.row_numbers())
    for score in scores.by_plugin:
        normalized, raw = score.normalized.tolist(), score.raw.tolist()
        for position, (row, name) in enumerate(zip(rows, names, strict=True)):
            logger.log(
                TRACE,
                "%s -> %s: %s, requested %s, allocatable %s, score %d (raw %d, weight %d)",
                pod.key,
                name,
                score.plugin,
                _amounts(snapshot, snapshot.requested, row),
                _amounts(snapshot, snapshot.allocatable, row),
                normalized[position],
                raw[position],
                score.weight,
                extra={"pod": pod.key, "node": name, "plugin": score.plugin},
            )
    for name, total in zip(names, scores.total.tolist(), strict=True):
        fields = {"pod": pod.key, "node": name, "total": total}
        logger.log(TRACE, "%s: Host %s => Score %d", pod.key, name, total, extra=fields)


def _amounts(snapshot: Snapshot, column: IntColumn, row: int) -> str:
    """Amounts of a row by resource, those that are 0 left out."""
    return ",".join(_nonzero(snapshot, column, row)) or "nothing"


def _nonzero(snapshot: Snapshot, column: IntColumn, row: int) -> Iterator[str]:
    for resource, index in snapshot.resource_row.items():
        if column[index, row]:
            yield f"{resource}={int(column[index, row])}"
