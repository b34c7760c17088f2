"""Initializers: protobuf tensors and external files to read-only arrays, files memory-mapped, paths confined to the
model's folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail, InvalidProtobuf
from onnxplug.contract.types import ELEMENT_NAMES, numpy_dtype

_PACKED_PER_BYTE = {"int4": 2, "uint4": 2, "float4e2m1": 2, "int2": 4, "uint2": 4}


def tensor_array(tensor: Any, folder: Path) -> np.ndarray:
    """The array of a TensorProto; strings become an object array of str. Raises InvalidProtobuf or Fail naming the
    tensor."""
    if tensor.data_type not in ELEMENT_NAMES:
        raise InvalidProtobuf(f"Initializer '{tensor.name}' has unknown element type {tensor.data_type}")
    if any(d < 0 for d in tensor.dims):
        raise InvalidProtobuf(f"Initializer '{tensor.name}' has a negative dimension: {list(tensor.dims)}")
    if tensor.data_location == tensor.EXTERNAL:
        return _external(tensor, folder)
    return _decoded(tensor)


def sparse_array(sparse: Any, folder: Path) -> np.ndarray:
    """A SparseTensorProto as the dense array it stands for (indices linear or one row per value)."""
    values, indices = tensor_array(sparse.values, folder), tensor_array(sparse.indices, folder)
    try:
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        at = np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)
        dense[at] = values
    except (ValueError, IndexError, TypeError, MemoryError) as error:
        raise InvalidProtobuf(f"Sparse initializer '{sparse.values.name}' cannot be read: {error}") from error
    return dense


def _decoded(tensor: Any) -> np.ndarray:
    """The array of a TensorProto that holds its own data; bytes that are no UTF-8 become lone surrogates, as in names."""
    from onnx import numpy_helper

    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # whatever onnx, NumPy or ml_dtypes think of data that does not fit
        raise InvalidProtobuf(f"Initializer '{tensor.name}' cannot be read: {error}") from error
    if array.dtype.kind in "SUO":
        texts = [s.decode("utf-8", "surrogateescape") if isinstance(s, bytes) else str(s) for s in array.ravel()]
        array = np.array(texts, object).reshape(array.shape)
    if array.flags.owndata:
        array.flags.writeable = False
    return array


def _external(tensor: Any, folder: Path) -> np.ndarray:
    entries = {e.key: e.value for e in tensor.external_data}
    path = _confined(tensor.name, entries.get("location", ""), folder)
    element = ELEMENT_NAMES[tensor.data_type]
    if element == "string":
        raise Fail(f"External data of initializer '{tensor.name}': strings cannot be kept in a file of their own")
    count = math.prod(tensor.dims)
    per_byte = _PACKED_PER_BYTE.get(element, 1)
    needed = -(-count // per_byte) if per_byte > 1 else count * numpy_dtype(element).itemsize
    try:
        offset, length = _range(tensor.name, entries, needed, path)
        if count == 0:
            return np.zeros(tuple(tensor.dims), numpy_dtype(element))
        if per_byte > 1:
            return _packed(tensor, path, offset, length)
        mapped = np.memmap(path, np.uint8, "r", offset, (needed,))
    except (OSError, ValueError) as error:
        raise Fail(f"External data of initializer '{tensor.name}': '{path}' cannot be read: {error}") from error
    return np.asarray(mapped).view(numpy_dtype(element)).reshape(tuple(tensor.dims))


def _packed(tensor: Any, path: Path, offset: int, length: int) -> np.ndarray:
    from onnx import TensorProto

    inline = TensorProto()
    inline.CopyFrom(tensor)
    del inline.external_data[:]
    inline.data_location = TensorProto.DEFAULT
    with path.open("rb") as file:
        file.seek(offset)
        inline.raw_data = file.read(length)
    return _decoded(inline)


def _confined(name: str, location: str, folder: Path) -> Path:
    """The file of ``location``, which must lie inside ``folder`` with every symbolic link resolved."""
    if not location or os.path.isabs(location):
        raise Fail(f"External data of initializer '{name}': location '{location}' is not a relative path")
    try:
        root = folder.resolve()
        path = (root / location).resolve()
        inside, found = path.is_relative_to(root), path.is_file()
    except (OSError, ValueError, RuntimeError, TypeError) as error:  # a NUL, a loop of links, a name too long, no text
        raise Fail(f"External data of initializer '{name}': location {location!r} cannot be used: {error}") from error
    if not inside:
        raise Fail(f"External data of initializer '{name}': '{location}' escapes the model directory '{root}'")
    if not found:
        raise Fail(f"External data of initializer '{name}': file '{path}' doesn't exist")
    return path


def _range(name: str, entries: dict[str, str], needed: int, path: Path) -> tuple[int, int]:
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", needed))
    except ValueError:
        raise Fail(f"External data of initializer '{name}': offset and length must be integers") from None
    size = path.stat().st_size
    if offset < 0 or length < 0 or offset + max(length, needed) > size or length != needed:
        raise Fail(
            f"External data of initializer '{name}': bytes {offset}..{offset + length} do not hold the {needed} bytes of the tensor "
            f"('{path.name}' has {size})"
        )
    return offset, length
