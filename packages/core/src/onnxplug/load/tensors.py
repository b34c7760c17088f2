"""Initializers: protobuf tensors and external files to read-only arrays, files memory-mapped, paths confined to the
model's folder."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.contract.types import ELEMENT_NAMES, TensorType, numpy_dtype
from onnxplug.load.origin import FileOrigin

if TYPE_CHECKING:
    from pathlib import Path

BITS = {"int4": 4, "uint4": 4, "float4e2m1": 4, "int2": 2, "uint2": 2, "float6e2m3": 6, "float6e3m2": 6}
"""Element types that are packed, several to a byte or across bytes."""
_FIELDS = {
    "float": "float_data", "double": "double_data", "int64": "int64_data", "uint32": "uint64_data", "uint64": "uint64_data",
    **dict.fromkeys(("int32", "int16", "int8", "uint16", "uint8", "bool"), "int32_data"),
}  # fmt: skip
"""Fields that hold elements by their value, where ``raw_data`` does not."""
_KEYS = ("location", "offset", "length", "checksum")
"""What may be said of external data, beside data that was packed before."""
_STORED = {"int32_data": np.int32, "int64_data": np.int64, "uint64_data": np.uint64, "float_data": np.float32}


def tensor_array(tensor: Any, folder: str) -> np.ndarray:
    """The array of a TensorProto; strings become an object array of str. Raises Fail naming the
    tensor."""
    tensor_type(tensor.name, tensor.data_type, tensor.dims)
    if tensor.data_location == tensor.EXTERNAL:
        return _external(tensor, folder)
    return _decoded(tensor)


def payload_array(tensor: Any, payload: np.ndarray) -> np.ndarray:
    """The array of a TensorProto whose bytes were read apart. Fail when they are not the tensor's."""
    type_ = tensor_type(tensor.name, tensor.data_type, tensor.dims)
    if payload.nbytes != math.prod(tensor.dims) * type_.dtype.itemsize:
        raise Fail(f"Initializer '{tensor.name}' cannot be read: {payload.nbytes} bytes for {type_}{list(tensor.dims)}")
    array: np.ndarray = payload.view(type_.dtype).reshape(tuple(tensor.dims))
    array.flags.writeable = False
    return array


def tensor_type(name: str, code: int, dims: Sequence[int]) -> TensorType:
    """The type of an initializer. Fail when there is no such type."""
    if code not in ELEMENT_NAMES:
        raise Fail(f"This is an invalid model. Tensor '{name}' does not have valid data type. ({code})")
    if any(d < 0 for d in dims):
        raise Fail(f"Initializer '{name}' has a negative dimension: {list(dims)}")
    return TensorType(ELEMENT_NAMES[code], tuple(dims))


def sparse_array(sparse: Any, folder: str) -> np.ndarray:
    """A SparseTensorProto as the dense array it stands for (indices linear or one row per value)."""
    if ELEMENT_NAMES.get(sparse.values.data_type) == "string":
        raise Fail(f"Unsupported sparse tensor data type of 8 (sparse tensor '{sparse.values.name}' of strings)")
    values, indices = tensor_array(sparse.values, folder), tensor_array(sparse.indices, folder)
    try:
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        at = np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)
        dense[at] = values
    except (ValueError, IndexError, TypeError, MemoryError) as error:
        raise Fail(f"Sparse initializer '{sparse.values.name}' cannot be read: {error}") from error
    return dense


def _decoded(tensor: Any) -> np.ndarray:
    """The array of a TensorProto that holds its own data; bytes that are no UTF-8 become lone surrogates, as in names."""
    element = ELEMENT_NAMES[tensor.data_type]
    try:
        if element == "string":
            if tensor.HasField("raw_data"):
                raise InvalidArgument(f"Deserialize tensor {tensor.name} failed.string tensor can not have raw data")
            texts = [text.decode("utf-8", "surrogateescape") for text in tensor.string_data]
            array = np.array(texts, object).reshape(tuple(tensor.dims))
        elif element not in BITS and tensor.HasField("raw_data") and not tensor.HasField("segment"):
            array = np.frombuffer(tensor.raw_data, numpy_dtype(element)).reshape(tuple(tensor.dims))
            array = array if sys.byteorder == "little" else array.byteswap()
        elif element in _FIELDS and not tensor.HasField("segment"):
            field = _FIELDS[element]
            stored = np.array(getattr(tensor, field), _STORED.get(field)).reshape(tuple(tensor.dims))
            array = stored.astype(numpy_dtype(element), copy=False)
        else:  # onnx's reader, which is imported with much else
            from onnx import numpy_helper

            array = np.asarray(numpy_helper.to_array(tensor))
    except InvalidArgument:
        raise
    except Exception as error:  # whatever onnx, NumPy or ml_dtypes think of data that does not fit
        raise Fail(f"Initializer '{tensor.name}' cannot be read: {error}") from error
    array.flags.writeable = False
    return array


def external_place(tensor: Any, folder: str) -> tuple[FileOrigin, int, TensorType] | None:
    """The file of a tensor's external data, as it is now, where in it they begin and of what type they are; None where they do not lie
    there as an array does, or cannot be read."""
    if ELEMENT_NAMES.get(tensor.data_type, "string") in ("string", *BITS) or not math.prod(tensor.dims):
        return None
    try:
        entries = _entries(tensor)
        path = str(_confined(tensor.name, entries.get("location", ""), folder))
        state = os.stat(path)
        type_ = tensor_type(tensor.name, tensor.data_type, tensor.dims)
        return FileOrigin(path, state.st_size, state.st_mtime_ns), int(entries.get("offset", 0)), type_
    except (Fail, OSError, ValueError):
        return None


def _external(tensor: Any, folder: str) -> np.ndarray:
    entries = _entries(tensor)
    path = _confined(tensor.name, entries.get("location", ""), folder)
    element = ELEMENT_NAMES[tensor.data_type]
    if element == "string":
        raise Fail(f"External data of initializer '{tensor.name}': strings cannot be kept in a file of their own")
    count, dtype = math.prod(tensor.dims), numpy_dtype(element)
    needed = -(-count * BITS.get(element, 8 * dtype.itemsize) // 8)
    try:
        offset, length = _range(tensor.name, entries, needed, path)
        if count == 0:
            return np.zeros(tuple(tensor.dims), dtype)
        if element in BITS:
            return _packed(tensor, path, offset, length)
        mapped = np.memmap(path, np.uint8, "r", offset, (needed,))
    except (OSError, ValueError) as error:
        raise Fail(f"External data of initializer '{tensor.name}': '{path}' cannot be read: {error}") from error
    return np.asarray(mapped).view(dtype).reshape(tuple(tensor.dims))


def _entries(tensor: Any) -> dict[str, str]:
    """What a tensor says of its external data, by key. Fail, as onnxruntime, for two locations and for keys that mean nothing."""
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        key = entry.key
        if key not in _KEYS and not key.startswith("prepacked"):
            raise Fail(f"model format error! External data of initializer '{tensor.name}' has an entry '{key}'")
        if key == "location" and key in entries:
            raise Fail("model format error! TensorProto external data has duplicate 'location' entries")
        entries[key] = entry.value
    return entries


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


def _confined(name: str, location: str, folder: str) -> Path:
    """The file of ``location``, which must lie inside ``folder`` with every symbolic link resolved."""
    if not location or os.path.isabs(location):
        reason = (
            "Absolute path not allowed for external data location"
            if location
            else "External data location cannot be empty"
        )
        raise Fail(f"External data path validation failed for initializer: {name}. Error: {reason}")
    from pathlib import Path  # few models have such files

    try:
        root = Path(folder).resolve()
        path = (root / location).resolve()
        # ``Path`` drops what stands behind a file's name, and folders that are left again
        inside, found = path.is_relative_to(root), os.path.isfile(os.path.join(root, location))
    except (OSError, ValueError, RuntimeError, TypeError) as error:  # a NUL, a loop of links, a name too long, no text
        raise Fail(f"External data of initializer '{name}': location {location!r} cannot be used: {error}") from error
    if not inside:
        raise Fail(
            f"External data path validation failed for initializer: {name}. Error: External data path escapes model directory. "
            f'External data path: "{location}" resolved path: "{path}" allowed directory: "{root}"'
        )
    if not found:
        raise Fail(
            f'External data path validation failed for initializer: {name}. Error: External data path does not exist: "{path}"'
        )
    return path


def _range(name: str, entries: dict[str, str], needed: int, path: Path) -> tuple[int, int]:
    told = [entries.get(key, "0") for key in ("offset", "length")]
    if not all(re.fullmatch("-?[0-9]{1,19}", text) for text in told):
        raise Fail(f"External data of initializer '{name}': offset and length must be integers")
    offset, length = int(told[0]), int(told[1]) or needed  # a length of 0 is one that is not told, as in ONNX Runtime
    size = path.stat().st_size
    if length != needed:
        raise Fail(
            f"TensorProto: {name} external data size mismatch. Computed size: {needed}, external_data.length: {length}"
        )
    if offset < 0 or offset + needed > size:
        raise Fail(
            f"External initializer: {name} offset: {offset} size to read: {needed} given file_length: {size} are out of bounds or "
            f"can not be read in full. ('{path.name}')"
        )
    return offset, length
