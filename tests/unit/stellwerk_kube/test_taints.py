"""Taints and tolerations, case by case."""

import itertools

import pytest

from stellwerk_kube.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    Taint,
    Toleration,
    parse_taints,
    parse_tolerations,
    untolerated,
)

KEY1 = Taint("key1", "value1", NO_SCHEDULE)


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        pytest.param(Toleration("key1", "Equal", "value1", NO_SCHEDULE), True, id="equal"),
        pytest.param(Toleration("key1", "Equal", "value2", NO_SCHEDULE), False, id="other value"),
        pytest.param(Toleration("key2", "Equal", "value1", NO_SCHEDULE), False, id="other key"),
        pytest.param(Toleration("key1", "Equal", "value1", NO_EXECUTE), False, id="other effect"),
        pytest.param(Toleration("key1", "Exists", "", NO_SCHEDULE), True, id="exists"),
        pytest.param(Toleration("key1", "Exists"), True, id="no effect: every effect"),
        pytest.param(Toleration("", "Exists"), True, id="no key: every key"),
        pytest.param(Toleration("", "Exists", "", NO_EXECUTE), False, id="every key, other effect"),
        pytest.param(Toleration("key1", "Lt", "value1"), False, id="an operator of another time"),
    ],
)
def test_a_toleration(toleration: Toleration, *, tolerates: bool) -> None:
    assert toleration.tolerates(KEY1) is tolerates


def test_defaults_of_the_api() -> None:
    assert parse_tolerations([{"key": "key1", "value": "value1"}]) == (
        Toleration("key1", "Equal", "value1"),
    )
    assert parse_tolerations([{"operator": "Exists", "tolerationSeconds": 0}]) == (
        Toleration(operator="Exists", toleration_seconds=0),
    )
    assert parse_taints([{"key": "k", "effect": NO_EXECUTE, "timeAdded": "2026-01-01T00:00:00Z"}])
    assert parse_taints([{"key": "k", "effect": NO_EXECUTE}]) == (Taint("k", "", NO_EXECUTE),)
    assert parse_taints(None) == ()
    assert parse_tolerations(None) == ()


def test_what_remains_of_three_taints_and_two_tolerations() -> None:
    taints = [KEY1, Taint("key1", "value1", NO_EXECUTE), Taint("key2", "value2", NO_SCHEDULE)]
    tolerations = [Toleration("key1", value="value1", effect=each.effect) for each in taints[:2]]
    hard = (NO_SCHEDULE, NO_EXECUTE)
    assert untolerated(taints, tolerations, hard) == [taints[2]]
    assert untolerated(taints, (), hard) == taints
    assert untolerated(taints, (), (PREFER_NO_SCHEDULE,)) == []


def test_many_tolerations_stand_what_each_of_them_stands() -> None:
    kinds = itertools.product(
        ("", "a", "b"), ("Equal", "Exists", "Lt"), ("", "1"), ("", NO_EXECUTE)
    )
    taints = [
        Taint(key, value, effect)
        for key in ("a", "b", "c")
        for value in ("", "1", "2")
        for effect in (NO_SCHEDULE, NO_EXECUTE)
    ]
    for toleration in itertools.starmap(Toleration, kinds):
        many = [toleration, *(Toleration(f"other-{number}") for number in range(100))]
        assert untolerated(taints, many, (NO_SCHEDULE, NO_EXECUTE)) == [
            taint for taint in taints if not toleration.tolerates(taint)
        ]
