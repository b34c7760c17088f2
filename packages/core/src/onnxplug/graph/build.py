"""ModelProto to Graph: names made unique, structure checked, constants resolved, nested graphs linked to the values
they capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.contract.types import SparseTensorType, TensorType
from onnxplug.graph.between import named_subgraph
from onnxplug.graph.check import (
    check_bodies,
    check_functions,
    check_initializer,
    check_node,
    check_order,
    check_outputs,
    invalid_node,
)
from onnxplug.graph.constants import (
    DUPLICATE,
    OVERRIDABLE,
    UNREAD,
    earlier_constant,
    fill_constant,
    sparse_outputs,
    unread,
    value_attributes,
)
from onnxplug.graph.counters import declares_rows, reshape_counters
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.protos import GRAPH, GRAPHS, attribute_value, declared_type, utf8_name
from onnxplug.graph.schemas import EP_CONTEXT, Schemas, is_control
from onnxplug.graph.sources import Stored
from onnxplug.graph.value import Load, Value
from onnxplug.load.model import Model, newest_opsets, normal_domain
from onnxplug.load.tensors import external_place, payload_array, sparse_array, tensor_array, tensor_type

SEPARATOR = "/"
GRADIENT_BODY = "body"
"""Name of the nested graph that a Gradient node is given: the tensor y it names as a function of xs and zs."""
_UNCHECKED = frozenset({("LayerNormalization", 1), ("SimplifiedLayerNormalization", 1)})
"""onnxruntime's operators in ONNX's domain, whose schemas allow attributes that nobody reads; models have ``epsion``."""


def build_graph(model: Model, schemas: Schemas, replaced: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The main graph of a model. ``replaced`` are arrays to take in place of initializers of the main graph, whose own data
    is not read. Raises InvalidGraph, InvalidProtobuf, InvalidArgument or Fail naming what is wrong."""
    graph = Graph(model.proto.graph.name, newest_opsets() | model.opsets, schemas)
    graph.folder = model.folder
    for function in model.proto.functions:
        key = (normal_domain(function.domain), function.name, function.overload)
        if key in graph.functions:
            raise Fail(
                f"This is an invalid model. Function '{function.name}' of domain '{function.domain}' is defined twice."
            )
        graph.functions[key] = function
    check_functions(graph.functions, model.proto.graph)
    Builder(model.proto.ir_version >= 4, replaced, model).fill(graph, model.proto.graph, {}, "")
    return graph


class Builder:
    """Fills graphs from protos. Values of nested graphs are renamed where another value of the model has their name."""

    def __init__(
        self,
        overridable: bool = True,
        replaced: Mapping[str, np.ndarray] | None = None,
        model: Model | None = None,
    ) -> None:
        self._overridable, self._replaced, self._model = overridable, replaced or {}, model
        self._numbers: Counter[str] = Counter()

    def fill(self, graph: Graph, proto: Any, outer: dict[str, Value], prefix: str) -> None:
        """Read ``proto`` into ``graph``; ``outer`` are the values visible from enclosing graphs."""
        scope = dict(outer)
        own: set[str] = set()
        self._read_inputs(graph, proto, scope, own)
        self._read_initializers(graph, proto, scope, own)
        declared: dict[str, Any] = {}
        for info in (*proto.output, *proto.value_info):
            if info.HasField("type"):
                declared.setdefault(info.name, info.type)
        nodes = self._declare_outputs(graph, proto.node, scope, own, declared, prefix)
        check_outputs(proto, scope)
        if graph.parent is not None:
            check_order(proto, scope)
        for node in nodes:
            graph.nodes.append(self.node(graph, node, scope, prefix))
        self.differentiated(graph, graph.nodes, nodes, scope, graph.opsets)
        for output in proto.output:
            value = scope[output.name]
            value.type = value.type or declared_type(output.type)
            graph.outputs.append(value)
        held = list(graph.initializers)
        arrange(graph)
        graph.remarks += map(UNREAD.format, unread(graph, held))
        if graph.parent is None:
            graph.sparse_outputs = tuple(sparse_outputs(graph, {t.values.name for t in proto.sparse_initializer}))

    def node(
        self, graph: Graph, proto: Any, scope: dict[str, Value], prefix: str, opsets: dict[str, int] | None = None
    ) -> Node:
        """One node; ``opsets`` overrides the graph's (a function's own imports)."""
        opsets = graph.opsets if opsets is None else opsets
        domain, names, attributes = normal_domain(proto.domain), list(proto.input), list(proto.attribute)
        op_type = proto.op_type  # asked for once: protobuf makes a new string each time
        for text in (proto.name, op_type, domain, proto.overload, *names):
            utf8_name(text)
        inputs = [self._lookup(name, proto, scope) if name else None for name in names]
        outputs = [scope[name] if name else None for name in proto.output]
        wrong = partial(invalid_node, proto.name, op_type, domain, inputs, outputs)
        schema, since = _schema(graph, proto, domain, op_type, opsets, wrong)
        if op_type == "Constant" and not domain:
            attributes = value_attributes(attributes, schema)
        elif not domain and schema is not None and (op_type, since) in _UNCHECKED:
            attributes = [a for a in attributes if a.name in schema.attributes]
        kinds = [(a.name, a.type) for a in attributes]
        node = Node(
            self._name(graph, proto, prefix), op_type, domain, since, inputs, outputs,
            {
                name: attribute_value(a, graph.folder)
                for a, (name, kind) in zip(attributes, kinds, strict=True) if kind not in GRAPHS
            },
            attributes, schema,
        )  # fmt: skip
        node.overload = proto.overload
        if schema is not None:
            check_node(node, schema, kinds)
        for attribute, (name, kind) in zip(attributes, kinds, strict=True):
            if kind == GRAPH:
                nested = Graph(attribute.g.name or name, opsets, graph.schemas, graph)
                nested.owner = node
                self.fill(nested, attribute.g, scope, node.name + SEPARATOR)
                node.subgraphs[name] = nested
        if schema is not None and is_control(node):
            check_bodies(node)
            if op_type == "Loop" and declares_rows(node.subgraphs["body"]):
                reshape_counters(node)
        return node

    def differentiated(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        protos: Sequence[Any],
        scope: dict[str, Value],
        opsets: dict[str, int],
    ) -> None:
        """Give each Gradient node the sub-graph it names among ``protos``, the nodes that stand beside it."""
        for node, proto in zip(nodes, protos, strict=True):
            if is_gradient(node):
                body = Graph(str(node.attributes["y"]), opsets, graph.schemas, graph)
                body.owner = node
                self.fill(body, named_subgraph(proto, node.attributes, protos), scope, node.name + SEPARATOR)
                node.subgraphs[GRADIENT_BODY] = body

    def _read_inputs(self, graph: Graph, proto: Any, scope: dict[str, Value], own: set[str]) -> None:
        for info in proto.input:
            if info.name in own:
                raise Fail(f"Error: Duplicate definition-site for ({info.name}).")
            value = Value(graph.names.value(utf8_name(info.name)), declared_type(info.type))
            if value.type is None and graph.parent is None:
                raise Fail(f"This is an invalid model. Model input ({info.name}) does not have type information.")
            graph.inputs.append(value)
            scope[info.name] = value
            own.add(info.name)

    def _read_initializers(self, graph: Graph, proto: Any, scope: dict[str, Value], own: set[str]) -> None:
        inputs = {name: scope[name] for name in own}
        seen: set[str] = set()
        latest = {tensor.name: tensor for tensor in proto.initializer}
        if len(latest) < len(proto.initializer):
            twice = [name for name, count in Counter(t.name for t in proto.initializer).items() if count > 1]
            graph.remarks += [DUPLICATE.format(name) for name in twice]
            for tensor in proto.initializer:
                check_initializer(tensor.name, _type_of(tensor), _type_of(latest[tensor.name]))
        for tensor in latest.values():
            array, again = self._data(graph, tensor)
            dims = array.shape if isinstance(array, np.ndarray) and tensor.name in self._replaced else tensor.dims
            self._initializer(graph, tensor.name, dims, tensor.data_type, array, inputs, scope, seen, again)
        for sparse in proto.sparse_initializer:
            name, dense = sparse.values.name, sparse_array(sparse, graph.folder)
            declared = inputs.get(name)
            if declared is not None and isinstance(declared.type, SparseTensorType):
                declared.type = TensorType(declared.type.element, declared.type.shape)
            self._initializer(graph, name, dense.shape, sparse.values.data_type, dense, inputs, scope, seen)
        own |= seen

    def _data(self, graph: Graph, tensor: Any) -> tuple[Any, Load | None]:
        """The array, or for data inside the model a function that reads it when it is needed; and how it is had again."""
        name, model = tensor.name, self._model
        if graph.parent is None and name in self._replaced:
            return self._replaced[name], None
        if graph.parent is None and model is not None and name in model.payloads and not tensor.HasField("raw_data"):
            array, origin = payload_array(tensor, model.payloads[name]), model.origin
            if origin is None:
                return array, None
            return array, Stored(origin, model.offsets[name], _type_of(tensor))
        read = partial(tensor_array, tensor, graph.folder)
        if tensor.data_location == tensor.EXTERNAL:
            return read(), Stored(*outside) if (outside := external_place(tensor, graph.folder)) else read
        if tensor.HasField("raw_data"):
            return read, partial(read)
        try:
            return read(), None
        except Fail:  # said when the data is asked for: a type that a node forbids comes first
            return read, None

    def _initializer(
        self,
        graph: Graph,
        name: str,
        dims: Sequence[int],
        code: int,
        array: Any,
        inputs: dict[str, Value],
        scope: dict[str, Value],
        seen: set[str],
        again: Load | None = None,
    ) -> None:
        if name in seen:
            raise Fail(f"This is an invalid model. Error: Duplicate initializer ({name}).")
        seen.add(name)
        type_ = tensor_type(name, code, dims)
        value = inputs.get(name)
        if value is None:
            value = Value(graph.names.value(utf8_name(name)))
        else:
            check_initializer(name, value.type, type_)
            if self._overridable and graph.parent is None:
                value.default = array() if callable(array) else array
                value.type = value.type or type_
                graph.remarks.append(OVERRIDABLE.format(name))
                return
            graph.inputs = [v for v in graph.inputs if v is not value]
        value.type = type_
        value.hold(array, again)
        graph.initializers[value.name] = scope[name] = value

    def _declare_outputs(
        self,
        graph: Graph,
        protos: Any,
        scope: dict[str, Value],
        own: set[str],
        declared: dict[str, Any],
        prefix: str,
    ) -> list[Any]:
        """The nodes to read: of Constants with one name the last, as in onnxruntime, whose own optimizer wrote such models."""
        nodes = list(protos)
        for node in protos:
            for name in node.output:
                if not name:
                    continue
                if name in own:
                    earlier = earlier_constant(name, node, nodes)
                    nodes.remove(earlier or node)
                    if earlier is None:
                        made = self.node(graph, node, scope, prefix)
                        fill_constant(graph, scope[name], made, self._overridable and graph.parent is None)
                    if scope[name] not in graph.inputs:
                        graph.remarks.append(DUPLICATE.format(name))
                    continue
                own.add(name)
                proto = declared.get(name)
                type_ = None if proto is None else declared_type(proto)
                if isinstance(type_, SparseTensorType) and node.op_type == "Constant" and not node.domain:
                    held = [a.sparse_tensor for a in node.attribute if a.type == a.SPARSE_TENSOR]
                    type_ = tensor_type(name, held[0].values.data_type, held[0].dims) if held else type_  # held dense
                scope[name] = Value(graph.names.value(utf8_name(name)), type_)
        return nodes

    def _lookup(self, name: str, proto: Any, scope: dict[str, Value]) -> Value:
        try:
            return scope[name]
        except KeyError:
            raise InvalidArgument(
                f"Invalid model. Node input '{name}' is not a graph input, initializer, or output of a previous node. "
                f"(node '{proto.name}', {proto.op_type})"
            ) from None

    def _name(self, graph: Graph, proto: Any, prefix: str) -> str:
        name = (proto.name or f"{proto.op_type}_{self._numbers[prefix + proto.op_type]}").replace("\\", "\\\\")
        if not proto.name:
            self._numbers[prefix + proto.op_type] += 1
        return graph.names.node(prefix + name)


def _type_of(tensor: Any) -> TensorType:
    return tensor_type(tensor.name, tensor.data_type, tensor.dims)


def is_gradient(node: Node) -> bool:
    """Whether the node is a Gradient, which reads values that are not its inputs."""
    return node.op_type == "Gradient" and node.domain == "ai.onnx.preview.training"


def arrange(graph: Graph) -> None:
    """Bring uses up to date and nodes into a topological order. Fail when there is none."""
    graph.refresh()
    try:
        graph.sort()
    except ValueError as error:
        raise Fail(
            f"This is an invalid model. Error: the graph is not acyclic. (a cycle goes through node '{error}')"
        ) from None


def _schema(
    graph: Graph, proto: Any, domain: str, op_type: str, opsets: dict[str, int], wrong: Callable[[str], Exception]
) -> tuple[Any, int]:
    """The schema in force and its since-version. A model-local function has none: version of its domain. An operator of
    a domain nobody knows has none either."""
    opset = opsets.get(domain)
    if (domain, op_type) == EP_CONTEXT:
        return None, 1
    if graph.functions and (domain, op_type, proto.overload) in graph.functions:
        return None, opset or 1
    if opset is None:
        opset = graph.schemas.newest(domain)  # onnxruntime's files use contrib operators without importing their domain
        if opset is None:
            raise wrong(f"No opset import for domain '{domain}'")
    schema = graph.schemas.find(domain, op_type, opset)
    if schema is None and graph.schemas.offers_domain(domain):
        raise Fail(f"Fatal error: {domain}:{op_type}(-1) is not a registered function/op (node '{proto.name}')")
    if schema is None and graph.schemas.knows_domain(domain):
        raise wrong(f"No Op registered for {op_type} with domain_version of {opset}")
    return schema, schema.since_version if schema is not None else 1
