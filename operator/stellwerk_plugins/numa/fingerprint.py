"""The fingerprint of a set of pods, by which an exporter says which pods it has seen on its node.

XXH64 of the pods' hashes in order, where a pod's hash is that of its name, seeded with that of its
namespace (version 001 of the format that exporters write).
"""

from collections.abc import Iterable
from typing import Final

_MASK: Final = (1 << 64) - 1
_PRIMES: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_PREFIX: Final = "pfp0v001"
_STRIPE: Final = 32
_LANE: Final = 8
_HALF: Final = 4


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of pods given by namespace and name, in any order."""
    hashes = sorted(xxh64(name.encode(), xxh64(namespace.encode())) for namespace, name in pods)
    return f"{_PREFIX}{xxh64(b''.join(each.to_bytes(_LANE, 'little') for each in hashes)):016x}"


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64, the 64-bit variant of xxHash."""
    one, two, three, four, five = _PRIMES
    position, length = 0, len(data)
    if length >= _STRIPE:
        lanes = [seed + one + two, seed + two, seed, seed - one]
        while position + _STRIPE <= length:
            for index in range(4):
                lanes[index] = _round(lanes[index], _word(data, position))
                position += _LANE
        result = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * one + four) & _MASK
    else:
        result = seed + five
    result = (result + length) & _MASK
    while position + _LANE <= length:
        result = (_rotated(result ^ _round(0, _word(data, position)), 27) * one + four) & _MASK
        position += _LANE
    if position + _HALF <= length:
        part = int.from_bytes(data[position : position + _HALF], "little")
        result = (_rotated(result ^ (part * one & _MASK), 23) * two + three) & _MASK
        position += _HALF
    for byte in data[position:]:
        result = (_rotated(result ^ (byte * five & _MASK), 11) * one) & _MASK
    result = ((result ^ (result >> 33)) * two) & _MASK
    result = ((result ^ (result >> 29)) * three) & _MASK
    return result ^ (result >> 32)


def _word(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + _LANE], "little")


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return ((value << by) | (value >> (64 - by))) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _PRIMES[1], 31) * _PRIMES[0] & _MASK
