"""Patterns are the best there are, and what is open always fits."""

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.plugins.gpu.pattern_pricing import NodeShape, PatternPricing, PlannedKind, Slot
from stellwerk.plugins.gpu.pattern_targets import IdleCapacity, OpenSlots
from tests.support.examples import examples

KIND = st.one_of(
    st.builds(
        PlannedKind,
        st.sampled_from([0, 1000, 2500, 4000]),
        st.just(0.0),
        st.sampled_from([190, 300, 500, 810, 1000]),
        st.just(1),
        st.just(()),
    ),
    st.builds(
        PlannedKind,
        st.sampled_from([1000, 4000]),
        st.just(0.0),
        st.just(1000),
        st.sampled_from([2, 3]),
        st.just(()),
    ),
    st.builds(
        PlannedKind,
        st.sampled_from([1500, 3000]),
        st.just(0.0),
        st.just(0),
        st.just(0),
        st.just(()),
    ),
)
SHAPE = st.builds(
    NodeShape,
    st.sampled_from([0, 2000, 5000, 8000]),
    st.just(0),
    st.integers(0, 3),
    st.lists(st.sampled_from([19, 31, 50, 81]), max_size=2).map(
        lambda free: tuple(sorted(free, reverse=True))
    ),
    st.just(""),
)


def best_by_trying(kinds: list[PlannedKind], worth: list[float], shape: NodeShape) -> float:
    """What pods on a node are worth at most, tried one after the other."""
    capacity = (100,) * shape.untouched + shape.partial

    def tried(first: int, cpu: int, free: tuple[int, ...]) -> float:
        best = 0.0
        for number in range(first, len(kinds)):
            kind, steps = kinds[number], kinds[number].gpu_milli // 10
            if kind.cpu_millis > cpu:
                continue
            if not kind.gpu_milli:
                if kind.cpu_millis:
                    rest = tried(number, cpu - kind.cpu_millis, free)
                    best = max(best, worth[number] + rest)
                continue
            fitting = [device for device, left in enumerate(free) if left >= steps]
            if len(fitting) < kind.devices:
                continue
            choices = [fitting[: kind.devices]] if kind.devices > 1 else [[d] for d in fitting]
            for chosen in choices:
                left = tuple(
                    room - steps if device in chosen else room for device, room in enumerate(free)
                )
                rest = tried(number, cpu - kind.cpu_millis, left)
                best = max(best, worth[number] + rest)
        return best

    return tried(0, shape.cpu_millis, capacity)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(KIND, st.sampled_from([1.0, 2.0, 5.0, 7.5])), min_size=1, max_size=3),
    SHAPE,
)
def test_no_pattern_is_worth_more(kinds: list[tuple[PlannedKind, float]], shape: NodeShape) -> None:
    listed, worth = [kind for kind, _ in kinds], [value for _, value in kinds]
    pricing = PatternPricing(dict(enumerate(listed)), worth, 8000)
    found, slots = pricing.best(shape)
    assert abs(found - sum(worth[slot.kind] for slot in slots)) < 1e-6
    assert abs(found - best_by_trying(listed, worth, shape)) < 1e-6
    fits(
        listed,
        slots,
        IdleCapacity(shape.cpu_millis, [1000] * shape.untouched + [10 * n for n in shape.partial]),
    )


def fits(kinds: list[PlannedKind], slots: list[Slot], room: IdleCapacity) -> None:
    taken: Counter[int] = Counter()
    for slot in slots:
        assert len(set(slot.devices)) == len(slot.devices) == kinds[slot.kind].devices
        taken.update(dict.fromkeys(slot.devices, kinds[slot.kind].gpu_milli))
    assert all(taken[device] <= room.free_milli[device] for device in taken)
    assert sum(kinds[slot.kind].cpu_millis for slot in slots) <= room.cpu_millis


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(KIND, min_size=1, max_size=4),
    st.data(),
    st.integers(0, 12_000),
    st.lists(st.sampled_from([0, 190, 500, 1000]), min_size=1, max_size=4),
)
def test_repaired_slots_fit(
    kinds: list[PlannedKind], data: st.DataObject, cpu: int, free: list[int]
) -> None:
    slots = OpenSlots(kinds, 1, len(free))
    for number, kind in product(range(len(kinds)), range(2)):
        kind_number = data.draw(st.sampled_from(range(len(kinds))))
        wanted = kinds[kind_number].devices
        if wanted <= len(free):
            slots.open(0, Slot(kind_number, tuple(range(wanted))))
        assert number >= 0
        assert kind >= 0
    room = IdleCapacity(cpu, free)
    slots.repair(0, room, [1.0] * len(kinds))
    fits(kinds, list(slots.of(0)), room)
    assert slots.counts.sum() == len(slots.of(0))
    slots.clear(0)
    assert not slots.milli.any()
    assert not slots.cpu_millis.any()
