"""Initializers of a model that is written, in a file beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from onnxplug.contract.errors import InvalidArgument


def move_out(proto: Any, folder: str, path: str, least: int) -> None:
    """Write the initializers of at least ``least`` bytes into one file and make the ModelProto refer to it. Strings stay
    where they are. InvalidArgument for a path out of ``folder``, the model's, or one that cannot be written."""
    from onnx import numpy_helper

    location, offset, parts = _inside(path, folder), 0, []
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != object and array.nbytes >= least:
            data = tensor.raw_data or array.tobytes()
            refer(tensor, location, offset, len(data))
            parts.append(data)
            offset += len(data)
    if parts:
        try:
            with open(os.path.join(folder, location), "wb") as file:
                file.writelines(parts)
        except OSError as error:
            raise InvalidArgument(f'open file "{location}" failed: {error.strerror or error}') from error


def refer(tensor: Any, location: str, offset: int, length: int) -> None:
    """Make a TensorProto say that its data is in a file."""
    from onnx import TensorProto

    kept = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, doc_string=tensor.doc_string)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        kept.external_data.add(key=key, value=str(value))
    kept.data_location = TensorProto.EXTERNAL
    tensor.CopyFrom(kept)


def external_locations(proto: Any) -> set[str]:
    """The files, as the model names them, that tensors of a ModelProto lie in, those of attributes, nested graphs and functions
    included."""
    tensors = chain(_tensors(proto.graph), *(_of_nodes(function.node) for function in proto.functions))
    outside = (t for t in tensors if t.data_location == t.EXTERNAL)
    return {entry.value for tensor in outside for entry in tensor.external_data if entry.key == "location"}


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for each in graph.sparse_initializer:
        yield from (each.values, each.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            kind = attribute.type
            if kind in (attribute.TENSOR, attribute.TENSORS):
                yield from [attribute.t] if kind == attribute.TENSOR else attribute.tensors
            elif kind in (attribute.GRAPH, attribute.GRAPHS):
                for body in [attribute.g] if kind == attribute.GRAPH else attribute.graphs:
                    yield from _tensors(body)
            elif kind == attribute.SPARSE_TENSOR:
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)


def _inside(path: str, folder: str) -> str:
    """A file's path from the model's folder, which it may not leave: models are not loaded with data from elsewhere."""
    relative = os.path.relpath(os.path.join(folder, path) if not os.path.isabs(path) else path, folder)
    if relative.startswith(os.pardir):
        raise InvalidArgument(f"External initializers must lie in the model's folder '{folder}', not at '{path}'")
    return relative
