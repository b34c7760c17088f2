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

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW, _TENSOR_LOCATION = 2, 8, 9, 14
_PACKED_TYPES = frozenset({8, 21, 22, 23, 25, 26, 27, 28})
"""Strings, and element types smaller than a byte or across bytes: left to onnx's own reader."""
_WORD = 8
LIMIT = 1024
"""Bytes; smaller tensors are not worth a detour."""


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
        rest = _model(file, size, offsets)
        payloads = {name: _payload(file, whole, offset, nbytes) for name, (offset, nbytes) in offsets.items()}
    except (_NotUnderstood, UnicodeDecodeError, MemoryError, OverflowError):
        return None
    return Skimmed(rest, payloads, {name: offset for name, (offset, _) in offsets.items()})


def _payload(file: BufferedIOBase, whole: bytes | None, offset: int, nbytes: int) -> np.ndarray:
    if whole is not None:  # lies in memory already; it is copied where its elements would lie across words
        held = np.frombuffer(whole, np.uint8, nbytes, offset)
        return held if held.ctypes.data % _WORD == 0 else held.copy()
    payload = np.empty(nbytes, np.uint8)
    file.seek(offset)
    if file.readinto(payload.data) != nbytes:
        raise _NotUnderstood
    return payload


def _model(file: BufferedIOBase, size: int, offsets: dict[str, tuple[int, int]]) -> bytes:
    parts, graphs = [], 0
    for number, wire, start, end in _fields(file, size):
        if number == _MODEL_GRAPH and wire == _LENGTH:
            graphs += 1
            graph = _graph(file, end, offsets)
            parts.append(_field(number, graph))
        else:
            parts.append(_slice(file, start, end))
    if graphs != 1:
        raise _NotUnderstood
    return b"".join(parts)


def _graph(file: BufferedIOBase, end: int, offsets: dict[str, tuple[int, int]]) -> bytes:
    parts = []
    for number, wire, start, stop in _fields(file, end):
        if number == _GRAPH_INITIALIZER and wire == _LENGTH and stop - start > LIMIT:
            parts.append(_field(number, _tensor(file, stop, offsets)))
        else:
            parts.append(_slice(file, start, stop))
    return b"".join(parts)


def _tensor(file: BufferedIOBase, end: int, offsets: dict[str, tuple[int, int]]) -> bytes:
    begin = file.tell()
    kept, name, raw, plain = [], "", None, True
    for number, wire, start, stop in _fields(file, end):
        if number == _TENSOR_RAW and wire == _LENGTH:
            if raw is not None:
                raise _NotUnderstood
            raw = (file.tell(), stop)
            file.seek(stop)
            continue
        content = _slice(file, start, stop)
        kept.append(content)
        if number == _TENSOR_NAME and wire == _LENGTH:
            name = content[len(content) - _length_of(content) :].decode()
        elif number == _TENSOR_TYPE:
            plain = plain and content[-1] not in _PACKED_TYPES
        elif number == _TENSOR_LOCATION:
            plain = plain and content[-1] == 0
    if raw is None or raw[1] - raw[0] < LIMIT or not plain or not name or name in offsets:
        return _slice(file, begin, end)
    file.seek(end)
    offsets[name] = raw[0], raw[1] - raw[0]
    return b"".join(kept)


def _fields(file: BufferedIOBase, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field number, wire type, offset of the tag, offset behind the field); the file stands at the field's content."""
    while (start := file.tell()) < end:
        tag = _varint(file)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            at = file.tell()
            _varint(file)
            stop = file.tell()
            file.seek(at)
        elif wire == _LENGTH:
            length = _varint(file)
            stop = file.tell() + length
        elif wire in (_FIXED64, _FIXED32):
            stop = file.tell() + (8 if wire == _FIXED64 else 4)
        else:
            raise _NotUnderstood
        if stop > end or number == 0:
            raise _NotUnderstood
        yield number, wire, start, stop
        file.seek(stop)


def _slice(file: BufferedIOBase, start: int, end: int) -> bytes:
    file.seek(start)
    content = file.read(end - start)
    if len(content) != end - start:
        raise _NotUnderstood
    return content


def _varint(file: BufferedIOBase) -> int:
    value = shift = 0
    while True:
        byte = file.read(1)
        if not byte or shift > 63:
            raise _NotUnderstood
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7


def _length_of(content: bytes) -> int:
    """Length of the payload of a length-delimited field given with its one-byte tag."""
    value = shift = 0
    for byte in content[1:]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    encoded, length = bytearray([number << 3 | _LENGTH]), len(content)
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + content
