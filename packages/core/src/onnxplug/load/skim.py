"""Weights straight from the file into arrays, past the protobuf parser, which would copy them twice.

A model file is mostly the ``raw_data`` of its initializers. ``skim`` walks the wire format (protobuf.dev, "Encoding") down to those
fields, reads each large one into an array of its own, and hands the rest, now small, to the parser. A file that it does not
understand is left to the parser altogether, which then words the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BufferedIOBase

import numpy as np

from onnxplug.contract.records import record
from onnxplug.load.origin import WORD

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW, _TENSOR_LOCATION = 2, 8, 9, 14
_PACKED_TYPES = frozenset({8, 21, 22, 23, 25, 26, 27, 28})
"""Strings, and element types smaller than a byte or across bytes: left to onnx's own reader."""
LIMIT = 1024
"""Bytes; smaller tensors are not worth a detour."""
_WINDOW = 1 << 14
"""Bytes read ahead: the nodes of many a model, little beside a tensor."""
_LONGEST = 10
"""Bytes of the longest varint."""


@record(frozen=True, slots=True)
class Skimmed:
    """``rest`` parses as the model without the large tensors' bytes, which ``payloads`` holds by initializer name; they lie at
    ``offsets`` of the model."""

    rest: bytes
    payloads: dict[str, np.ndarray]
    offsets: Mapping[str, int]


class _NotUnderstood(Exception):
    pass


def skim(file: BufferedIOBase, size: int, whole: bytes | None = None) -> Skimmed | None:
    """Skim a model of ``size`` bytes from a seekable file; None when it is not laid out as every exporter does it. Payloads
    are parts of ``whole``, if the file's content is in memory."""
    offsets: dict[str, tuple[int, int]] = {}
    try:
        rest = _model(_Source(file), size, offsets)
        payloads = {name: _payload(file, whole, offset, nbytes) for name, (offset, nbytes) in offsets.items()}
    except (_NotUnderstood, UnicodeDecodeError, MemoryError, OverflowError):
        return None
    return Skimmed(rest, payloads, {name: offset for name, (offset, _) in offsets.items()})


def _payload(file: BufferedIOBase, whole: bytes | None, offset: int, nbytes: int) -> np.ndarray:
    if whole is not None:  # lies in memory already; it is copied where its elements would lie across words
        held = np.frombuffer(whole, np.uint8, nbytes, offset)
        return held if held.ctypes.data % WORD == 0 else held.copy()
    payload = np.empty(nbytes, np.uint8)
    file.seek(offset)
    if file.readinto(payload.data) != nbytes:
        raise _NotUnderstood
    return payload


class _Source:
    """A file, of which some bytes are at hand: ``data`` lies at ``base``."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file, self.data, self.base = file, b"", 0

    def varint(self, at: int) -> tuple[int, int]:
        """The number that begins at an offset, and the offset behind it."""
        index = at - self.base
        if not 0 <= index <= len(self.data) - _LONGEST:
            self._file.seek(at)
            self.data, self.base, index = self._file.read(_WINDOW), at, 0
        data, value, shift = self.data, 0, 0
        try:
            while (byte := data[index]) >= 0x80:
                value |= (byte & 0x7F) << shift
                index, shift = index + 1, shift + 7
                if shift > 63:
                    raise _NotUnderstood
        except IndexError:
            raise _NotUnderstood from None
        return value | byte << shift, self.base + index + 1

    def slice(self, start: int, end: int) -> bytes:
        """The bytes between two offsets."""
        if self.base <= start and end <= self.base + len(self.data):
            return self.data[start - self.base : end - self.base]
        self._file.seek(start)
        content = self._file.read(end - start)
        if len(content) != end - start:
            raise _NotUnderstood
        return content


def _model(source: _Source, size: int, offsets: dict[str, tuple[int, int]]) -> bytes:
    parts, graphs = [], 0
    for number, wire, start, content, end in _fields(source, 0, size):
        if number == _MODEL_GRAPH and wire == _LENGTH:
            graphs += 1
            parts.append(_field(number, _graph(source, content, end, offsets)))
        else:
            parts.append(source.slice(start, end))
    if graphs != 1:
        raise _NotUnderstood
    return b"".join(parts)


def _graph(source: _Source, start: int, end: int, offsets: dict[str, tuple[int, int]]) -> bytes:
    parts, copied = [], start
    for number, wire, begin, content, stop in _fields(source, start, end):
        if number == _GRAPH_INITIALIZER and wire == _LENGTH and stop - begin > LIMIT:
            tensor = _tensor(source, content, stop, offsets)
            if tensor is not None:
                parts += [source.slice(copied, begin), _field(number, tensor)]
                copied = stop
    return b"".join((*parts, source.slice(copied, end)))


def _tensor(source: _Source, start: int, end: int, offsets: dict[str, tuple[int, int]]) -> bytes | None:
    """A tensor without its raw data, whose place is entered; None for one that stays as it is."""
    kept, name, raw, plain = [], "", None, True
    for number, wire, begin, content, stop in _fields(source, start, end):
        if number == _TENSOR_RAW and wire == _LENGTH:
            if raw is not None:
                raise _NotUnderstood
            raw = (content, stop)
            continue
        kept.append(source.slice(begin, stop))
        if number == _TENSOR_NAME and wire == _LENGTH:
            name = source.slice(content, stop).decode()
        elif number == _TENSOR_TYPE:
            plain = plain and kept[-1][-1] not in _PACKED_TYPES
        elif number == _TENSOR_LOCATION:
            plain = plain and kept[-1][-1] == 0
    if raw is None or raw[1] - raw[0] < LIMIT or not plain or not name or name in offsets:
        return None
    offsets[name] = raw[0], raw[1] - raw[0]
    return b"".join(kept)


def _fields(source: _Source, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(field number, wire type, offset of the tag, offset of the content, offset behind the field)."""
    while start < end:
        tag, content = source.varint(start)
        number, wire = tag >> 3, tag & 7
        if wire == _LENGTH:
            length, content = source.varint(content)
            stop = content + length
        elif wire == _VARINT:
            stop = source.varint(content)[1]
        elif wire in (_FIXED64, _FIXED32):
            stop = content + (8 if wire == _FIXED64 else 4)
        else:
            raise _NotUnderstood
        if stop > end or number == 0:
            raise _NotUnderstood
        yield number, wire, start, content, stop
        start = stop


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    encoded, length = bytearray([number << 3 | _LENGTH]), len(content)
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + content
