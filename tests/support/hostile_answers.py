"""Answers of an operator whose every text is markup, for the page that shows them.

Invariant: a page that takes any of these texts for more than text runs a script.
"""

from typing import Any

EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}\u202e\n"


def hostile_answers() -> dict[str, Any]:
    """By path; the pods are a/bound, a/waiting and a/failed."""
    waiting = _waiting()
    scores = {EVIL: {"raw": 1, "normalized": 50, "weighted": 100}}
    return {
        "/decisions": {"total": 999, "items": [{
            "pod": f"{EVIL}/{EVIL}", "node": EVIL, "schedulerName": EVIL, "decidedAt": EVIL,
            "attempts": 1, "feasible": 1, "nodes": 2, "tied": 2}]},
        "/queue": {"counts": {}, "total": 999, "items": [{
            "pod": EVIL, "queue": EVIL, "schedulerName": EVIL, "priority": 1, "since": EVIL,
            "attempts": 1, "rejectedBy": [EVIL]}], "groupsTotal": 999, "groups": [{
                "namespace": EVIL, "controller": f"{EVIL}/{EVIL}", "pods": 2,
                "longestWaiting": EVIL, "queues": {EVIL: 2}, "rejectedBy": [EVIL], "error": EVIL,
                "message": EVIL, "profiles": [EVIL], "priority": 1, "attempts": 1,
                "waitsSince": EVIL, "created": EVIL}]},
        "/explain/search": {"total": 9, "items": [
            {"kind": "Pod", "name": f"{EVIL}/{EVIL}", "where": EVIL},
            {"kind": EVIL, "name": f"{EVIL}/{EVIL}"}]},
        "/explain/a/podgroups/x": {
            "podGroup": EVIL, "api": EVIL, "state": EVIL, "minCount": 1, "exist": 1, "placed": 0,
            "running": 0, "succeeded": 0, "waitsFor": EVIL, "remarks": [EVIL], "queue": EVIL,
            "members": [{"pod": EVIL, "node": EVIL, "queue": EVIL, "message": EVIL}],
            "wouldHappen": {
                "placed": False, "placements": 1, "attempts": 1, "placement": EVIL,
                "nodes": {EVIL: EVIL}, "message": EVIL, "missing": EVIL, "lacking": EVIL,
                "reasons": {EVIL: EVIL}, "victims": [EVIL]},
            "wouldFit": [{"nodes": 1, "like": EVIL, "allocatable": {EVIL: 1}}]},
        "/nodes": {"total": 999, "shares": [99], "items": [{
            "name": EVIL, "allocatable": {EVIL: 4, "cpu": 1}, "requested": {EVIL: 9},
            "labels": {EVIL: EVIL, "topology.kubernetes.io/zone": EVIL}, "unschedulable": True,
            "taints": [{"key": EVIL, "value": EVIL, "effect": EVIL}]}],
            "node": {"name": EVIL, "allocatable": {EVIL: 4}, "requested": {}, "labels": {},
                     "taints": [], "unschedulable": False},
            "running": 2, "pods": [EVIL], "fitting": [EVIL], "podsThere": [
                {"pod": EVIL, "requests": {EVIL: 1}, "priority": 1, "started": EVIL}],
            "turnedAway": [{"plugin": EVIL, "reasons": [EVIL], "pods": [EVIL], "count": 2}]},
        "/explain/devices": {"total": 999, "held": 1, "items": [{
            "device": EVIL, "node": EVIL, "attributes": {EVIL: EVIL}, "capacity": {EVIL: EVIL},
            "taints": [{"key": EVIL, "value": EVIL, "effect": EVIL}], "claims": [EVIL]}]},
        "/explain/a/resourceclaims/x": {
            "claim": EVIL, "state": "allocated", "problem": EVIL, "devices": [EVIL],
            "reservedFor": [EVIL], "waiting": [EVIL], "requests": [
                {"request": EVIL, "deviceClass": EVIL, "count": 1, "selectors": [EVIL]}]},
        "/explain/a/owners/Job/x": {
            "owner": EVIL, "namespace": EVIL, "total": 1, "waiting": 1,
            "items": [{"pod": EVIL, "node": EVIL, "queue": EVIL}]},
        "/shadow/x": {
            "profile": EVIL, "shadowOf": EVIL, "decisions": 1, "compared": 1, "differing": 1,
            "skipped": 0, "failed": 0, "meanGain": EVIL, "meanGainPoints": 1.0, "differences": [{
                "at": EVIL, "pod": EVIL, "node": EVIL, "shadowNode": EVIL, "total": 1,
                "shadowTotal": 2, "plugin": EVIL, "reason": EVIL}]},
        "/profiles": {
            "items": [{"name": "x", "schedulerName": EVIL, "generation": 1, "extenders": False,
                       "plugins": {EVIL: [EVIL]}, "weights": {EVIL: 1}, "scheduledPods": 1}],
            "refused": [{"schedulerName": EVIL, "reason": EVIL}],
            "objects": [{"name": "x", "generation": 1, "conditions": [
                {"type": EVIL, "status": "False", "reason": EVIL, "message": EVIL,
                 "lastTransitionTime": EVIL, "observedGeneration": 1}]}]},
        "/explain/a/bound": {
            "pod": EVIL, "state": "bound", "schedulerName": EVIL, "priority": 1, "node": EVIL,
            "requests": {EVIL: 1},
            "note": EVIL, "preempted": {"by": EVIL, "byPriority": 1, "priority": 0, "node": EVIL,
                                        "decidedAt": EVIL},
            "decision": {
                "decidedAt": EVIL, "attempts": 1, "nodes": 2, "evaluated": 2, "feasible": 2,
                "tied": 2, "nominated": False,
                "best": [{"node": EVIL, "rank": 1, "total": 1, "scores": scores}],
                "others": {"countedAt": EVIL, "nodes": 1,
                           "reasons": [{"plugin": EVIL, "reasons": [EVIL], "nodes": 1}]}}},
        "/explain/a/waiting": waiting,
        "/explain/a/failed": {
            "pod": EVIL, "state": "waiting",
            "verdicts": {"recomputedAt": EVIL, "error": EVIL}},
        "/what-if": {
            "drained": EVIL, "acts": [EVIL], "leftOut": 1,
            "ended": [{"pod": EVIL, "node": EVIL, "reason": EVIL, "madeAnew": False}],
            "compatibility": [EVIL],
            "placed": [{"pod": EVIL, "node": EVIL}],
            "unplaced": [{"pod": EVIL, "message": EVIL,
                          "wouldPreempt": {"node": EVIL, "victims": [EVIL]}}],
            "explanation": waiting},
    }  # fmt: skip


def hostile_device() -> dict[str, Any]:
    """What is said of one device, at the path of the list."""
    device = hostile_answers()["/explain/devices"]["items"][0]
    counter = dict.fromkeys(("counterSet", "counter", "takes", "offered", "free"), EVIL)
    holder = {"claim": EVIL, "request": EVIL, "consumed": {EVIL: EVIL}, "pods": [EVIL]}
    return {
        "device": device,
        "resourceSlice": EVIL,
        "shared": True,
        "holders": [{**holder, "onlyLooks": True}],
        "counters": [counter],
        "nodes": [EVIL],
        "onNodes": 7,
    }


def _waiting() -> dict[str, Any]:
    queue = {
        "queue": EVIL,
        "since": EVIL,
        "attempts": 1,
        "unschedulableAttempts": 1,
        "consecutiveErrors": 0,
        "wokenBy": [{"event": EVIL, "plugins": [EVIL]}],
    }
    return {
            "pod": EVIL, "state": "waiting", "schedulerName": EVIL, "priority": 1, "queue": queue,
            "lastAttempt": {"endedAt": EVIL, "message": EVIL}, "reason": EVIL, "nearest": EVIL,
            "lastPreemption": {"decidedAt": EVIL, "node": EVIL, "candidates": 1,
                               "budgetViolations": 0, "others": [],
                               "nominatedNode": EVIL + "x", "victims": [
                                   {"pod": EVIL, "priority": 1}]},
            "plugins": {EVIL: {"lines": [EVIL], "fields": {EVIL: EVIL}}},
            "leftOut": [{"plugin": EVIL, "reason": EVIL}],
            "preemption": {"node": EVIL, "victims": [{"pod": EVIL, "priority": 1}],
                           "wouldDo": EVIL},
            "wouldFit": [{"text": EVIL, "changes": [], "feasibleNodes": 1, "nodes": [EVIL],
                          "alternatives": []}],
            "verdicts": {
                "recomputedAt": EVIL, "nodes": 1, "feasible": 0,
                "preFilter": {"plugin": EVIL, "reasons": [EVIL]},
                "byPlugin": [{"plugin": EVIL, "nodes": 1, "verdicts": [
                    {"reasons": [EVIL], "nodes": 1, "examples": [EVIL]}]}],
                "nearest": [{"node": EVIL, "rejectedBy": {EVIL: [EVIL]}}]}}  # fmt: skip
