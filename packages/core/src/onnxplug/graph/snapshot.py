"""A graph as plain data, for a later process that opens the same model: what inference and the optimizer found out, without the
weights, which stay in the model.

``freeze`` gives nothing but tuples, numbers, strings and bytes, which ``marshal`` writes and reads, and ``thaw`` makes the graph of
them that was frozen, without onnx unless the model has functions of its own: the schemas and the protos of attributes are had when
somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxplug.contract.types import (
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
    element_of,
    numpy_dtype,
)
from onnxplug.graph.ir import Formals, Graph, Later, Node
from onnxplug.graph.schemas import Schemas
from onnxplug.graph.sources import Scaled, Stored, Transposed, Widened
from onnxplug.graph.value import Value
from onnxplug.load.origin import FileOrigin, Origin

LIMIT = 16 << 20
"""Bytes of constants and attributes beyond which a graph is not worth keeping: to find it out again takes no longer than the rest of
the creation."""
_PLAIN = (int, float, str)
Data = tuple[Any, ...]


class Unfit(Exception):
    """The graph holds something that is had from the model alone."""


def freeze(graph: Graph, origin: Origin) -> Data:
    """The graph as data; ``origin`` is the model's. Unfit for one with attributes that are messages, or too much in it."""
    return _Freezer(origin).main(graph)


def thaw(data: Data, schemas: Schemas, folder: str, origin: Origin) -> Graph:
    """The graph that was frozen. ``origin`` is the model's, with the bytes it had then."""
    return _Thawer(schemas, origin).main(data, folder)


class _Freezer:
    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._numbers: dict[Value, int] = {}
        self._values: list[Data | None] = []
        self._types: dict[ValueType | None, int] = {}
        self._formals: dict[Formals | None, int] = {}
        self._left = LIMIT

    def main(self, graph: Graph) -> Data:
        main = self._graph(graph)
        values, nodes = graph.names.taken()
        types, functions = list(map(type_data, self._types)), list(map(self._function, graph.functions.items()))
        taken = list(values), list(nodes)
        return main, self._values, types, list(self._formals), *taken, functions, graph.remarks, graph.sparse_outputs

    def _function(self, item: tuple[tuple[str, str, str], Any]) -> Data:
        key, proto = item
        data = proto.SerializeToString()
        self._take(len(data))
        return key, data

    def _graph(self, graph: Graph) -> Data:
        initializers = [(name, self._number(value)) for name, value in graph.initializers.items()]
        inputs = list(map(self._number, graph.inputs))
        nodes = list(map(self._node, graph.nodes))
        return graph.name, graph.opsets, inputs, initializers, nodes, list(map(self._number, graph.outputs))

    def _node(self, node: Node) -> Data:
        ins, outs = (tuple(-1 if v is None else self._number(v) for v in side) for side in (node.inputs, node.outputs))
        protos = [proto.SerializeToString() for proto in node.attribute_protos]
        self._take(sum(map(len, protos)))
        return (
            node.name, node.op_type, node.domain, node.since_version, ins, outs,
            {name: self._attribute(value) for name, value in node.attributes.items()},
            protos, self._formals.setdefault(node.formals, len(self._formals)), node.signature, node.overload, node.origin,
            {name: self._graph(body) for name, body in node.subgraphs.items()},
        )  # fmt: skip

    def _attribute(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, np.ndarray):
            return self._array(value)
        if type(value) is list:
            if all(type(each) in _PLAIN for each in value):
                return value
            return [self._attribute(each) for each in value]
        raise Unfit(str(type(value)))

    def _number(self, value: Value) -> int:
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self._values)
            self._values.append(None)
            self._values[known] = self._value(value)
        return known

    def _value(self, value: Value) -> Data:
        kind = self._types.setdefault(value.type, len(self._types))
        default = None if value.default is None else self._array(value.default)
        told = self._types.setdefault(value.told, len(self._types))
        return value.name, kind, self._constant(value), default, value.is_noted, told

    def _constant(self, value: Value) -> Data | None:
        if not value.is_constant:
            return None
        if isinstance(value.source, Stored):
            origin = value.source.origin
            file = None if origin == self._origin else _file_data(origin)
            return "stored", value.source.offset, type_data(value.source.type), file
        if isinstance(value.source, Scaled):
            return "scaled", self._value(value.source.source), self._array(value.source.factors)
        if isinstance(value.source, Transposed):
            return "transposed", self._value(value.source.source), value.source.order
        if isinstance(value.source, Widened):
            return "widened", self._value(value.source.source)
        array = value.constant
        assert array is not None
        return "held", self._array(array)

    def _array(self, array: np.ndarray) -> Data:
        if array.dtype == object:
            held: Any = array.ravel().tolist()
            if not all(type(each) is str for each in held):
                raise Unfit("objects")
            self._take(sum(map(len, held)))
        else:
            self._take(array.nbytes)
            held = array.tobytes()
        return element_of(array.dtype), array.shape, held

    def _take(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left < 0:
            raise Unfit("size")


class _Thawer:
    def __init__(self, schemas: Schemas, origin: Origin) -> None:
        self._schemas, self._origin = schemas, origin
        self._values: list[Value] = []
        self._types: list[ValueType | None] = []
        self._formals: list[Formals | None] = []

    def main(self, data: Data, folder: str) -> Graph:
        main, values, types, self._formals, taken_values, taken_nodes, functions, remarks, sparse = data
        self._types = list(map(type_of, types))
        self._values = list(map(self._value, values))
        graph = self._graph(main, None, folder)
        graph.names.take(taken_values, taken_nodes)
        graph.functions.update((key, _function(proto)) for key, proto in functions)
        graph.remarks += remarks
        graph.sparse_outputs = sparse
        graph.refresh()
        return graph

    def _graph(self, data: Data, parent: Graph | None, folder: str) -> Graph:
        name, opsets, inputs, initializers, nodes, outputs = data
        values = self._values
        graph = Graph(name, opsets, self._schemas, parent)
        graph.folder = folder
        graph.inputs = [values[number] for number in inputs]
        graph.initializers = {name: values[number] for name, number in initializers}
        graph.nodes = [self._node(node, graph) for node in nodes]
        graph.outputs = [values[number] for number in outputs]
        return graph

    def _node(self, data: Data, graph: Graph) -> Node:
        name, op_type, domain, since, ins, outs, attributes, protos, formals, signature, overload, origin, bodies = data
        inputs, outputs = ([None if number < 0 else self._values[number] for number in side] for side in (ins, outs))
        known, schemas = self._formals[formals], self._schemas
        node = Node(
            name, op_type, domain, since, inputs, outputs, {name: _attribute(value) for name, value in attributes.items()},
            Later(lambda: _parsed(protos)) if protos else (),
            None if known is None else Later(lambda: schemas.find(domain, op_type, since)),
        )  # fmt: skip
        node.restore(signature, known)
        node.overload, node.origin = overload, origin
        for name, body in bodies.items():
            node.subgraphs[name] = nested = self._graph(body, graph, graph.folder)
            nested.owner = node
        return node

    def _value(self, data: Data) -> Value:
        name, kind, constant, default, noted, told = data
        value = Value(name, self._types[kind])
        value.is_noted, value.told = noted, self._types[told]
        value.default = None if default is None else _array(default)
        if constant is not None:
            _CONSTANTS[constant[0]](self, value, *constant[1:])
        return value

    def _stored(self, value: Value, offset: int, type_: Data, file: Data | None) -> None:
        kind = type_of(type_)
        assert isinstance(kind, TensorType)
        source = Stored(self._origin if file is None else FileOrigin(*file), offset, kind)
        value.hold(source.read, source)

    def _scaled(self, value: Value, source: Data, factors: Data) -> None:
        again = Scaled(self._value(source), _array(factors))

        def first() -> np.ndarray:
            made = again()
            again.source.release()
            return made

        value.hold(first, again)

    def _transposed(self, value: Value, source: Data, order: tuple[int, ...]) -> None:
        again = Transposed(self._value(source), order)
        value.hold(again.read, again)

    def _widened(self, value: Value, source: Data) -> None:
        again = Widened(self._value(source))
        value.hold(again, again)

    def _held(self, value: Value, array: Data) -> None:
        value.hold(_array(array))


_CONSTANTS: Mapping[str, Callable[..., None]] = {
    "stored": _Thawer._stored, "scaled": _Thawer._scaled, "transposed": _Thawer._transposed, "held": _Thawer._held,
    "widened": _Thawer._widened,
}  # fmt: skip


def _file_data(origin: Origin) -> Data:
    """A file beside the model, with data of its own, as it was when the model was read."""
    assert isinstance(origin, FileOrigin)
    return origin.path, origin.size, origin.modified


def _parsed(protos: list[bytes]) -> list[Any]:
    from onnxplug.graph.protos import attribute_from_bytes

    return list(map(attribute_from_bytes, protos))


def _function(data: bytes) -> Any:
    from onnxplug.graph.protos import function_from_bytes

    return function_from_bytes(data)


def _attribute(value: Any) -> Any:
    if type(value) is tuple:
        return _array(value)
    if type(value) is list and value and type(value[0]) in (tuple, list):
        return list(map(_attribute, value))
    return value


def _array(data: Data) -> np.ndarray:
    element, shape, held = data
    if element == "string":
        texts = np.empty(len(held), object)
        texts[:] = held
        texts.flags.writeable = False
        return texts.reshape(shape)
    return np.ndarray(shape, numpy_dtype(element), held)


def type_data(type_: ValueType | None) -> Any:
    """A type as data."""
    if type_ is None:
        return None
    if isinstance(type_, TensorType | SparseTensorType):
        return type(type_).__name__, type_.element, type_.shape
    if isinstance(type_, MapType):
        return "MapType", type_.key, type_data(type_.value)
    return type(type_).__name__, type_data(type_.element)


def type_of(data: Any) -> ValueType | None:
    """The type of such data."""
    if data is None:
        return None
    if data[0] == "TensorType":
        return TensorType(data[1], data[2])
    if data[0] == "SparseTensorType":
        return SparseTensorType(data[1], data[2])
    inner = type_of(data[-1])
    assert inner is not None
    if data[0] == "MapType":
        return MapType(data[1], inner)
    return (SequenceType if data[0] == "SequenceType" else OptionalType)(inner)
