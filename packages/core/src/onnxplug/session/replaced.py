"""Initializers whose data session options give: values by name, or whole external files in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.load.tensors import BITS, tensor_type
from onnxplug.session.options import SessionOptions
from onnxplug.session.ortvalue import OrtValue


def replacements(proto: Any, options: SessionOptions) -> dict[str, np.ndarray]:
    """Arrays to take in place of a GraphProto's initializers. Names of ``add_initializer`` that the model lacks are
    ignored, and the shape of its values need not be the initializer's, as in onnxruntime. Fail for values of another type, and for
    other external data than the model has."""
    tensors = {t.name: t for t in proto.initializer}
    for name in options._external_initializers:
        if name not in tensors:
            raise Fail(f"Failed to find existing initializer with name {name}.")
        if tensors[name].data_location != tensors[name].EXTERNAL:
            raise Fail(f"Trying to replace non-external initializer with external data: {name}")
    given = {**options._initializers, **options._external_initializers}
    found = {
        name: _fitting(
            name, tensor_type(name, t.data_type, t.dims), given[name], name in options._external_initializers
        )
        for name, t in tensors.items()
        if name in given
    }
    if options._external_files:
        found.update(_from_files(proto, options._external_files, found))
    return found


def _fitting(name: str, type_: Any, given: OrtValue, outside: bool) -> np.ndarray:
    array: np.ndarray = given.numpy()
    for what, own, got in ("dimensions do", type_.shape, array.shape), ("data type does", type_.dtype, array.dtype):
        if own != got and (outside or "type" in what):
            raise Fail(f"Replacement tensor's {what} not match: initializer '{name}' has {own}, the value given {got}.")
    return array.view(type_.dtype)


def _from_files(proto: Any, files: Mapping[str, memoryview], have: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Views of the files for the graph's own initializers; what is packed, or belongs to a nested graph, is put into the
    proto. Fail for a file that was not given, and for bytes outside of it."""
    arrays = {}
    own = {id(t) for t in proto.initializer}
    for tensor in _external(proto):
        if tensor.name in have:
            continue
        type_ = tensor_type(tensor.name, tensor.data_type, tensor.dims)
        bits = BITS.get(type_.element, 8 * type_.dtype.itemsize)
        part = _part(tensor, files, -(-math.prod(tensor.dims) * bits // 8))
        if id(tensor) in own and type_.element not in BITS:
            arrays[tensor.name] = np.frombuffer(part, np.uint8).view(type_.dtype).reshape(tuple(tensor.dims))
            continue
        tensor.raw_data = bytes(part)
        tensor.data_location = tensor.DEFAULT
        del tensor.external_data[:]
    return arrays


def _part(tensor: Any, files: Mapping[str, memoryview], needed: int) -> memoryview:
    entries = {e.key: e.value for e in tensor.external_data}
    name = entries.get("location", "")
    if name not in files:
        raise Fail(f"External file: {name} not found from the table user provided.")
    offset = int(entries.get("offset", 0))
    if offset < 0 or offset + needed > len(files[name]):
        raise Fail(
            f"External initializer: {tensor.name} offset: {offset} size to read: {needed} given file_length: "
            f"{len(files[name])} are out of bounds or can not be read in full."
        )
    return files[name][offset : offset + needed]


def _external(graph: Any) -> Iterator[Any]:
    for tensor in graph.initializer:
        if tensor.data_location == tensor.EXTERNAL:
            yield tensor
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _external(attribute.g)
