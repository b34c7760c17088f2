"""ModelProto to Graph: names made unique, structure checked, constants resolved, nested graphs linked to the values
they capture."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from onnxplug.contract.errors import Fail, InvalidArgument, InvalidGraph
from onnxplug.contract.types import ELEMENT_NAMES, SparseTensorType, TensorType, ValueType
from onnxplug.graph.ir import Graph, Node, Value
from onnxplug.graph.protos import attribute_value, type_from_proto
from onnxplug.graph.schemas import Schemas, check_node
from onnxplug.load.model import Model, normal_domain, opset_imports
from onnxplug.load.tensors import sparse_array, tensor_array

SEPARATOR = "/"


def build_graph(model: Model, schemas: Schemas) -> Graph:
    """The main graph of a model. Raises InvalidGraph, InvalidArgument or Fail naming what is wrong."""
    graph = Graph(model.proto.graph.name, model.opsets, schemas)
    for function in model.proto.functions:
        graph.functions[(normal_domain(function.domain), function.name, function.overload)] = function
    Builder(model.folder, overridable=model.proto.ir_version >= 4).fill(graph, model.proto.graph, {}, "")
    return graph


class Builder:
    """Fills graphs from protos; one per model, so that node names stay unique over all nested graphs."""

    def __init__(self, folder: Path, overridable: bool = True) -> None:
        self.folder, self._overridable = folder, overridable
        self._taken: set[str] = set()
        self._numbers: Counter[str] = Counter()

    def fill(self, graph: Graph, proto: Any, outer: dict[str, Value], prefix: str) -> None:
        """Read ``proto`` into ``graph``; ``outer`` are the values visible from enclosing graphs."""
        scope = dict(outer)
        own: set[str] = set()
        self._read_inputs(graph, proto, scope, own)
        self._read_initializers(graph, proto, scope, own, nested=bool(prefix))
        declared = {v.name: type_from_proto(v.type) for v in (*proto.value_info, *proto.output)}
        self._declare_outputs(proto.node, scope, own, declared)
        for node in proto.node:
            graph.nodes.append(self.node(graph, node, scope, prefix))
        for output in proto.output:
            if output.name not in scope:
                raise InvalidGraph(
                    f"This is an invalid model. Graph output '{output.name}' of graph '{graph.name}' is not produced by any node."
                )
            value = scope[output.name]
            value.type = value.type or type_from_proto(output.type)
            graph.outputs.append(value)
        graph.refresh()
        try:
            graph.sort()
        except ValueError as error:
            raise Fail(
                f"This is an invalid model. Error: the graph is not acyclic. (a cycle goes through node '{error}')"
            ) from None

    def node(
        self, graph: Graph, proto: Any, scope: dict[str, Value], prefix: str, opsets: dict[str, int] | None = None
    ) -> Node:
        """One node; ``opsets`` overrides the graph's (a function's own imports)."""
        opsets = graph.opsets if opsets is None else opsets
        domain = normal_domain(proto.domain)
        inputs = [self._lookup(name, proto, scope) if name else None for name in proto.input]
        outputs = [scope[name] if name else None for name in proto.output]
        schema, since = _schema(graph, proto, domain, opsets)
        plain = [a for a in proto.attribute if a.type not in (a.GRAPH, a.GRAPHS)]
        node = Node(
            self._name(proto, prefix), proto.op_type, domain, since, inputs, outputs,
            {a.name: attribute_value(a, self.folder) for a in plain}, proto.attribute, schema,
        )  # fmt: skip
        node.overload = proto.overload
        if schema is not None:
            check_node(node, opsets.get(domain))
        for attribute in proto.attribute:
            if attribute.type == attribute.GRAPH:
                nested = Graph(attribute.g.name or attribute.name, opsets, graph.schemas, graph)
                nested.owner = node
                self.fill(nested, attribute.g, scope, node.name + SEPARATOR)
                node.subgraphs[attribute.name] = nested
        return node

    def _read_inputs(self, graph: Graph, proto: Any, scope: dict[str, Value], own: set[str]) -> None:
        for info in proto.input:
            if info.name in own:
                raise InvalidGraph(f"This is an invalid model. Duplicate graph input '{info.name}'.")
            value = Value(info.name, type_from_proto(info.type))
            graph.inputs.append(value)
            scope[info.name] = value
            own.add(info.name)

    def _read_initializers(
        self, graph: Graph, proto: Any, scope: dict[str, Value], own: set[str], nested: bool
    ) -> None:
        inputs = {v.name: v for v in graph.inputs}
        seen: set[str] = set()
        for tensor in proto.initializer:
            if tensor.name in seen:
                raise InvalidGraph(f"This is an invalid model. Duplicate initializer '{tensor.name}'.")
            seen.add(tensor.name)
            element = ELEMENT_NAMES.get(tensor.data_type)
            array = self._lazy(tensor) if element is not None else tensor_array(tensor, self.folder)
            self._initializer(
                graph, tensor.name, array, TensorType(element or "float", tuple(tensor.dims)), inputs, scope, nested
            )
            own.add(tensor.name)
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            dense = sparse_array(sparse, self.folder)
            type_ = TensorType(ELEMENT_NAMES[sparse.values.data_type], dense.shape)
            declared = inputs.get(name)
            if declared is not None and isinstance(declared.type, SparseTensorType):
                declared.type = type_
            self._initializer(graph, name, dense, type_, inputs, scope, nested)
            own.add(name)

    def _lazy(self, tensor: Any) -> Any:
        if tensor.data_location == tensor.EXTERNAL or not tensor.HasField("raw_data"):
            return tensor_array(tensor, self.folder)
        return partial(tensor_array, tensor, self.folder)

    def _initializer(
        self,
        graph: Graph,
        name: str,
        array: Any,
        type_: ValueType,
        inputs: dict[str, Value],
        scope: dict[str, Value],
        nested: bool,
    ) -> None:
        if name in inputs:
            value = inputs[name]
            if self._overridable and not nested:
                value.default = array() if callable(array) else array
                return
            graph.inputs = [v for v in graph.inputs if v is not value]
        else:
            value = Value(name)
        value.type, value.constant = type_, array
        graph.initializers[name] = scope[name] = value

    def _declare_outputs(
        self, nodes: Any, scope: dict[str, Value], own: set[str], declared: dict[str, ValueType | None]
    ) -> None:
        for node in nodes:
            for name in node.output:
                if not name:
                    continue
                if name in own:
                    raise InvalidGraph(f"This is an invalid model. Error: Duplicate definition of name ({name}).")
                own.add(name)
                scope[name] = Value(name, declared.get(name))

    def _lookup(self, name: str, proto: Any, scope: dict[str, Value]) -> Value:
        try:
            return scope[name]
        except KeyError:
            raise InvalidArgument(
                f"Invalid model. Node input '{name}' is not a graph input, initializer, or output of a previous node. "
                f"(node '{proto.name}', {proto.op_type})"
            ) from None

    def _name(self, proto: Any, prefix: str) -> str:
        name = unique = prefix + (proto.name or f"{proto.op_type}_{self._numbers[prefix + proto.op_type]}")
        if not proto.name:
            self._numbers[prefix + proto.op_type] += 1
        n = 0
        while unique in self._taken:
            n += 1
            unique = f"{name}_{n}"
        self._taken.add(unique)
        return unique


def _schema(graph: Graph, proto: Any, domain: str, opsets: dict[str, int]) -> tuple[Any, int]:
    """The schema in force and its since-version. A model-local function has none: version of its domain."""
    opset = opsets.get(domain)
    if (domain, proto.op_type, proto.overload) in graph.functions:
        return None, opset or 1
    if opset is None:
        if domain == "com.microsoft":  # onnxruntime's own files use it without importing it
            opset = 1
        else:
            raise InvalidGraph(
                f"This is an invalid model. In Node, (\"{proto.name}\", {proto.op_type}), Error No opset import for domain '{domain}'"
            )
    schema = graph.schemas.find(domain, proto.op_type, opset)
    if schema is None and graph.schemas.knows_domain(domain):
        contrib = graph.schemas.find("com.microsoft", proto.op_type, 1)
        if contrib is None and proto.op_type != "SimplifiedLayerNormalization":
            raise InvalidGraph(
                f'This is an invalid model. In Node, ("{proto.name}", {proto.op_type}, "{domain}", -1), '
                f"Error No Op registered for {proto.op_type} with domain_version of {opset}"
            )
    return schema, schema.since_version if schema is not None else 1


def function_opsets(function: Any, graph: Graph) -> dict[str, int]:
    """Operator sets in force inside a function."""
    return {**graph.opsets, **opset_imports(function)}
