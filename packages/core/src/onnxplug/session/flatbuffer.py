"""As much of the FlatBuffers encoding as adapter files need: tables of integers, strings, vectors and sub-tables."""

from __future__ import annotations

import struct
from collections.abc import Sequence


class Table:
    """A table at ``at`` in a buffer; fields by number. ValueError where an offset leaves the buffer."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - self._number("<i", at)
        self._fields = (self._number("<H", self._vtable) - 4) // 2

    @classmethod
    def root(cls, data: bytes | memoryview, identifier: bytes) -> Table:
        """The outermost table of a file with this identifier."""
        view = memoryview(data)
        if bytes(view[4:8]) != identifier:
            raise ValueError("wrong file identifier")
        return cls(view, cls._unpack(view, "<I", 0))

    def number(self, field: int, form: str = "<i") -> int:
        """A number, 0 where the table has none."""
        at = self._place(field)
        return 0 if at is None else self._number(form, at)

    def bytes(self, field: int) -> memoryview:
        """The bytes of a string or a vector of bytes."""
        return self._vector(field, 1)

    def numbers(self, field: int) -> list[int]:
        """A vector of int64."""
        return [value for (value,) in struct.iter_unpack("<q", self._vector(field, 8))]

    def tables(self, field: int) -> list[Table]:
        """A vector of tables."""
        at = self._place(field)
        if at is None:
            return []
        at += self._number("<I", at)
        places = range(at + 4, at + 4 + 4 * self._number("<I", at), 4)
        return [Table(self._data, place + self._number("<I", place)) for place in places]

    def _vector(self, field: int, width: int) -> memoryview:
        at = self._place(field)
        if at is None:
            return self._data[:0]
        at += self._number("<I", at)
        found = self._data[at + 4 : at + 4 + width * self._number("<I", at)]
        if len(found) != width * self._number("<I", at):
            raise ValueError("vector leaves the file")
        return found

    def _place(self, field: int) -> int | None:
        offset = self._number("<H", self._vtable + 4 + 2 * field) if field < self._fields else 0
        return self._at + offset if offset else None

    def _number(self, form: str, at: int) -> int:
        return self._unpack(self._data, form, at)

    @staticmethod
    def _unpack(data: memoryview, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(data):
            raise ValueError("offset leaves the file")
        (value,) = struct.unpack_from(form, data, at)
        return int(value)


class Writer:
    """Builds a file front to back: objects are placed behind those that refer to them, offsets filled in afterwards."""

    def __init__(self) -> None:
        self._data = bytearray()

    def file(self, identifier: bytes, fields: Sequence[tuple[str, object] | None]) -> bytes:
        """The file whose root table has these fields: (struct format, number), ("bytes", bytes), ("text", bytes),
        ("numbers", [int]) or ("tables", [fields])."""
        self._data += bytes(4) + identifier
        self._refer(0, self._table(fields))
        return bytes(self._data)

    def _table(self, fields: Sequence[tuple[str, object] | None]) -> int:
        widths = [0 if f is None else struct.calcsize(f[0]) if f[0].startswith("<") else 4 for f in fields]
        offsets, size = [], 4
        for width in widths:
            offsets.append(size if width else 0)
            size += width
        self._align(4)
        vtable = len(self._data)
        self._data += struct.pack(f"<HH{len(fields)}H", 4 + 2 * len(fields), size, *offsets)
        self._align(4)
        at = len(self._data)
        self._data += struct.pack("<i", at - vtable) + bytes(size - 4)
        for field, offset in zip(fields, offsets, strict=True):
            if field is not None and field[0].startswith("<"):
                struct.pack_into(field[0], self._data, at + offset, field[1])
            elif field is not None:
                self._refer(at + offset, self._object(*field))
        return at

    def _object(self, kind: str, value: object) -> int:
        if kind == "tables":
            assert isinstance(value, list)
            self._align(4)
            at = len(self._data)
            self._data += struct.pack("<I", len(value)) + bytes(4 * len(value))
            for index, fields in enumerate(value):
                self._refer(at + 4 + 4 * index, self._table(fields))
            return at
        if kind == "numbers":
            assert isinstance(value, list)
            content, count = struct.pack(f"<{len(value)}q", *value), len(value)
        else:
            assert isinstance(value, bytes)
            content, count = value + (b"\0" if kind == "text" else b""), len(value)
        self._align(8, ahead=4)  # what follows the length is aligned for any element
        at = len(self._data)
        self._data += struct.pack("<I", count) + content
        return at

    def _align(self, to: int, ahead: int = 0) -> None:
        self._data += bytes(-(len(self._data) + ahead) % to)

    def _refer(self, place: int, target: int) -> None:
        struct.pack_into("<I", self._data, place, target - place)
