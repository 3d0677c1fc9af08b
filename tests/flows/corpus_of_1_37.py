"""Cases by hand of what Kubernetes 1.37 decides otherwise than 1.36, and how an answer is held.

Owns the reading of `tests/data/corpus-1.37` and the comparison of `decide`. Invariant: a case is
compared by what its expectation names, and by nothing else.
"""

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stellwerk_kube.json_values import JsonObject

_FILE: Final = Path(__file__).parents[1] / "data" / "corpus-1.37" / "cases.jsonl.xz"


def cases(kind: str = "") -> list[JsonObject]:
    """The cases of a kind, or all."""
    with lzma.open(_FILE, "rt", encoding="utf-8") as lines:
        read = [json.loads(line) for line in lines]
    return [case for case in read if not kind or case["when"] == kind]


def both_releases(kind: str) -> Iterator[tuple[str, str, JsonObject, Any]]:
    """(name, release, given, expected) of cases of a kind, in each release that they speak of."""
    for case in cases(kind):
        for release, field in (("1.36", "expect136"), ("1.37", "expect")):
            if field in case:
                yield f"{case['id']} as {release}", release, case["given"], case[field]


def differences(expected: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    """What a result of `decide` has otherwise than expected."""
    found: list[str] = []
    for key, wanted in expected.items():
        match key:
            case "scores":
                found += _of_scores(wanted, result)
            case "filter":
                found += _of_filter(wanted, result)
            case "devices":
                found += _of_claims(wanted, result, _devices)
            case "config":
                found += _of_claims(wanted, result, lambda each: each.get("config", []))
            case "consumed":
                found += _of_claims(
                    wanted, result, lambda each: each["results"][0].get("consumedCapacity")
                )
            case "message":
                found += _compared("message", wanted, result.get("message"))
            case "errorContains":
                error = str(result.get("error"))
                found += [f"{text!r} is not in {error!r}" for text in wanted if text not in error]
            case "error":
                found += [] if result.get("error") else [f"no error, but {wanted}"]
            case _:
                raise ValueError(key)
    return found


def _of_scores(wanted: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    for plugin, raw in wanted.items():
        scores = (result.get("scores") or {}).get(plugin)
        have = None if scores is None else {node: each["raw"] for node, each in scores.items()}
        yield from _compared(f"scores of {plugin}", raw, have)


def _of_filter(wanted: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    for node, verdict in wanted.items():
        have = (result.get("filter") or {}).get(node, {})
        yield from _compared(f"filter of {node}", verdict, {key: have.get(key) for key in verdict})


def _of_claims(wanted: Mapping[str, Any], result: Mapping[str, Any], part: Any) -> Iterator[str]:
    for node, claims in wanted.items():
        for claim, value in claims.items():
            allocation = (result.get("allocations") or {}).get(node, {}).get(claim)
            have = None if allocation is None else part(allocation["devices"])
            yield from _compared(f"{claim} on {node}", value, have)


def _devices(allocated: JsonObject) -> Sequence[str]:
    return [each["device"] for each in allocated["results"]]


def _compared(what: str, wanted: object, have: object) -> Iterator[str]:
    if wanted != have:
        yield f"{what}: {have!r}, expected {wanted!r}"
