"""The struct types inside a Go program, with the tags of their fields, read out of its ELF file.

Go keeps the types of a program for reflection even when symbols are stripped: the layout is that of
Go's internal/abi (Type, StructType, Name), for 64-bit little-endian machines.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BOOL, INTS, FLOATS = 1, range(2, 12), (13, 14)
MAP, POINTER, SLICE, STRING, STRUCT = 21, 22, 23, 24, 25
_UINT8 = 8
_UNCOMMON, _EXTRA_STAR, _NAMED = 1, 2, 4
_UNCOMMON_AT = {STRUCT: 80, POINTER: 56, SLICE: 56, MAP: 104}
_STARTS = ("*", "[", "map[", "chan ", "func(", "struct {", "<-chan ")


@dataclass(frozen=True)
class GoField:
    name: str
    tag: str
    embedded: bool
    type: int


class GoProgram:
    """Types are known by their addresses."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        self._sections = self._read_sections()
        _address, offset, size = self._sections[".typelink"]
        self._links = struct.unpack_from(f"<{size // 4}i", self._content, offset)
        self._base = self._find_base()

    def structs(self) -> Iterator[int]:
        """The named struct types that something points to."""
        for link in self._links:
            address = self._base + link
            if self.kind(address) == POINTER:
                pointed = self.element(address)
                if self.kind(pointed) == STRUCT and self._flags(pointed) & _NAMED:
                    yield pointed

    def kind(self, type_: int) -> int:
        return self._byte(type_ + 23) & 31

    def element(self, type_: int) -> int:
        """What a pointer points to, what a slice holds, the values of a map."""
        return self._word(type_ + (56 if self.kind(type_) == MAP else 48))

    def is_bytes(self, type_: int) -> bool:
        return self.kind(type_) == SLICE and self.kind(self.element(type_)) == _UINT8

    def name(self, type_: int) -> str:
        """With the last part of the package: v1.Pod."""
        text = self._name(self._base + self._int(type_ + 40))[0]
        return text[1:] if self._flags(type_) & _EXTRA_STAR else text

    def package(self, type_: int) -> str:
        if not self._flags(type_) & _UNCOMMON:
            return ""
        at = _UNCOMMON_AT.get(self.kind(type_), 48)
        return self._name(self._base + self._int(type_ + at))[0]

    def fields(self, type_: int) -> Iterator[GoField]:
        first, count = self._word(type_ + 56), self._word(type_ + 64)
        for position in range(count):
            at = first + 24 * position
            yield GoField(*self._name(self._word(at)), self._word(at + 8))

    def _read_sections(self) -> dict[str, tuple[int, int, int]]:
        content = self._content
        table = struct.unpack_from("<Q", content, 40)[0]
        count, names_index = struct.unpack_from("<HH", content, 60)
        rows = [struct.unpack_from("<IIQQQQ", content, table + 64 * each) for each in range(count)]
        names = rows[names_index][4]
        return {
            content[names + row[0] : content.index(b"\0", names + row[0])].decode(): row[3:6]
            for row in rows
        }

    def _find_base(self) -> int:
        """The address that offsets of types count from: a word of the module's description."""
        _address, offset, size = self._sections[".go.module"]
        for base in sorted(set(struct.unpack_from(f"<{size // 8}Q", self._content, offset))):
            sample = self._links[:: max(1, len(self._links) // 50)]
            try:
                self._base = base
                if all(self.name(base + link).startswith(_STARTS) for link in sample):
                    return int(base)
            except (KeyError, UnicodeDecodeError):
                continue
        raise ValueError("the program has no types where Go keeps them")

    def _offset(self, address: int) -> int:
        for name, (start, offset, size) in self._sections.items():
            if start and start <= address < start + size and not name.endswith("bss"):
                return offset + address - start
        raise KeyError(hex(address))

    def _byte(self, address: int) -> int:
        return self._content[self._offset(address)]

    def _word(self, address: int) -> int:
        return int(struct.unpack_from("<Q", self._content, self._offset(address))[0])

    def _int(self, address: int) -> int:
        return int(struct.unpack_from("<i", self._content, self._offset(address))[0])

    def _flags(self, type_: int) -> int:
        return self._byte(type_ + 20)

    def _name(self, address: int) -> tuple[str, str, bool]:
        at = self._offset(address)
        flags = self._content[at]
        name, at = self._text(at + 1)
        tag = self._text(at)[0] if flags & 2 else ""
        return name, tag, bool(flags & 8)

    def _text(self, at: int) -> tuple[str, int]:
        length = shift = 0
        while True:
            byte = self._content[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return self._content[at : at + length].decode(), at + length
