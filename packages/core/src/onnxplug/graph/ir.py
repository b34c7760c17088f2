"""The graph and its nodes. Small, slotted; providers see it through the read-only protocols of
``onnxplug.contract.graph``.

Uses, producers and captures are derived: ``Graph.refresh`` recomputes them, so that a pass may rewire nodes freely and
refresh once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract.digest import blake2b
from onnxplug.contract.types import TensorType
from onnxplug.graph.names import Names
from onnxplug.graph.value import Value

if TYPE_CHECKING:
    import numpy as np

    from onnxplug.graph.schemas import Schemas
    from onnxplug.graph.value import Load

_LONG = 1024
"""Bytes of attributes from which their digest stands for them."""


class Later:
    """What is made when it is first asked for."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


Formals = tuple[tuple[str, ...], tuple[str, ...]]


class Node:
    """One node. ``origin`` names the model's node it came from; ``attribute_protos`` are kept for inference and
    export. They and the ``schema`` may be given as ``Later``: only some sessions look at them."""

    __slots__ = (
        "_formals", "_protos", "_schema", "_signature", "attributes", "captures", "domain", "inputs", "name", "op_type", "origin",
        "outputs", "overload", "since_version", "subgraphs",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        op_type: str,
        domain: str,
        since_version: int,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | None],
        attributes: dict[str, Any] | None = None,
        attribute_protos: Sequence[Any] | Later = (),
        schema: Any = None,
    ) -> None:
        self.name, self.op_type, self.domain, self.since_version = name, op_type, domain, since_version
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.attributes: dict[str, Any] = attributes or {}
        self._protos: Any = attribute_protos if isinstance(attribute_protos, Later) else list(attribute_protos)
        self._schema = schema
        self._formals: Formals | None = None
        self._signature: bytes | None = None
        self.overload = ""
        self.origin = name
        self.subgraphs: dict[str, Graph] = {}
        self.captures: list[Value] = []

    @property
    def attribute_protos(self) -> list[Any]:
        """AttributeProtos."""
        if self._protos.__class__ is Later:
            self._protos = self._protos.make()
        protos: list[Any] = self._protos
        return protos

    @attribute_protos.setter
    def attribute_protos(self, protos: list[Any]) -> None:
        self._protos, self._signature = protos, None

    @property
    def schema(self) -> Any:
        """The operator's OpSchema, None where nobody brings one."""
        if self._schema.__class__ is Later:
            self._schema = self._schema.make()
        return self._schema

    @property
    def formals(self) -> Formals | None:
        """Names of the type parameters of the schema's inputs and outputs; None without a schema."""
        if self._formals is None and self.schema is not None:
            from onnxplug.graph.schemas import type_parameters

            self._formals = type_parameters(self.schema)
        return self._formals

    @property
    def signature(self) -> bytes:
        """The same for nodes whose attributes are, whatever their order."""
        if self._signature is None:
            parts = sorted(proto.SerializeToString(deterministic=True) for proto in self.attribute_protos)
            joined = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
            self._signature = joined if len(joined) <= _LONG else blake2b(joined).digest()
        return self._signature

    def restore(self, signature: bytes, formals: Formals | None) -> None:
        """Say what an earlier process found of the node, which then has no need of its attributes' protos and its schema."""
        self._signature, self._formals = signature, formals

    def twin(self, inputs: Sequence[Value | None], outputs: Sequence[Value | None]) -> Node:
        """A node of the same name, operator and attributes, without the nested graphs."""
        made = Node(
            self.name, self.op_type, self.domain, self.since_version, inputs, outputs, dict(self.attributes), self._protos, self._schema
        )  # fmt: skip
        made._signature, made._formals, made.overload, made.origin = (
            self._signature,
            self._formals,
            self.overload,
            self.origin,
        )
        return made

    @property
    def label(self) -> str:
        """Operator with its domain, for messages."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def reads(self) -> Iterator[Value]:
        """Every value the node needs: its inputs and what its nested graphs capture."""
        yield from (v for v in self.inputs if v is not None)
        yield from self.captures

    @property
    def constraint_types(self) -> dict[str, str]:
        """See ``onnxplug.graph.schemas.constraint_types``."""
        from onnxplug.graph.schemas import constraint_types

        return constraint_types(self)

    def proto(self) -> Any:
        """See ``NodeView``."""
        from onnxplug.graph.export import whole_node_proto

        return whole_node_proto(self)

    def __repr__(self) -> str:
        return f"<Node {self.name} {self.label}-{self.since_version}>"


class Graph:
    """A graph or a nested graph; ``owner`` is the node whose attribute a nested graph is. Names, functions, the folder of
    external data and ``remarks``, what is wrong without being an error, are the model's, shared by all its graphs.
    ``sparse_outputs`` names the outputs of the main graph that are sparse constants, which are dense arrays in here."""

    __slots__ = (
        "_identity",
        "folder",
        "functions",
        "initializers",
        "inputs",
        "name",
        "names",
        "nodes",
        "opsets",
        "outputs",
        "owner",
        "parent",
        "remarks",
        "schemas",
        "sparse_outputs",
    )

    def __init__(self, name: str, opsets: dict[str, int], schemas: Schemas, parent: Graph | None = None) -> None:
        self.name, self.opsets, self.schemas, self.parent = name, opsets, schemas, parent
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.initializers: dict[str, Value] = {}
        self.functions: dict[tuple[str, str, str], Any] = parent.functions if parent else {}
        self.folder: str = parent.folder if parent else "."
        self.names: Names = parent.names if parent else Names()
        self.remarks: list[str] = parent.remarks if parent else []
        self.sparse_outputs: tuple[str, ...] = ()
        self.owner: Node | None = None
        self._identity = ""

    @property
    def identity(self) -> str:
        """See ``GraphView``; a nested graph has its place in that of its parent."""
        if self.owner is None or self.parent is None:
            return self._identity
        outer = self.parent.identity
        if not outer:
            return ""
        at = next((number for number, node in enumerate(self.parent.nodes) if node is self.owner), -1)
        name = next((name for name, body in self.owner.subgraphs.items() if body is self), "")
        return f"{outer}/{at}.{name}" if at >= 0 and name else ""

    def identify(self, identity: str) -> None:
        """Have it known as this."""
        self._identity = identity

    def forget(self) -> None:
        """It is no longer what it was known as, nor are the graphs around it."""
        graph: Graph | None = self
        while graph is not None:
            graph._identity, graph = "", graph.parent

    def opset(self, domain: str) -> int | None:
        """The version of a domain that the model imports; None where it does not."""
        return self.opsets.get(domain)

    def value(self, name: str) -> Value:
        """The value of that name in this graph; KeyError when there is none."""
        return {v.name: v for v in self.values()}[name]

    def values(self) -> Iterator[Value]:
        """Inputs, initializers and node outputs of this graph."""
        yield from self.inputs
        yield from self.initializers.values()
        for node in self.nodes:
            yield from (v for v in node.outputs if v is not None)

    def walk(self) -> Iterator[Node]:
        """All nodes, nested graphs included, owners before their bodies."""
        for node in self.nodes:
            yield node
            for subgraph in node.subgraphs.values():
                yield from subgraph.walk()

    def add_constant(self, name: str, array: np.ndarray, again: Load | None = None) -> Value:
        """A new constant of this graph, its name made unique. ``again`` computes the array once more."""
        from onnxplug.contract.types import element_of

        value = Value(self.names.value(name), TensorType(element_of(array.dtype), array.shape))
        value.hold(array, again)
        self.initializers[value.name] = value
        return value

    def replace(self, news: Mapping[Value, Value]) -> None:
        """Let every reader of an old value (key), nested graphs included, read the new one; graph outputs of this graph
        too. A new value may itself be replaced."""

        def new(value: Any) -> Any:
            while value in news:
                value = news[value]
            return value

        for node in self.walk():
            if any(v in news for v in node.inputs):
                node.inputs = [new(v) for v in node.inputs]
            for subgraph in node.subgraphs.values():
                subgraph.outputs = [new(v) for v in subgraph.outputs]
        self.outputs = [new(v) for v in self.outputs]

    def refresh(self) -> None:
        """Recompute producers, consumers and captures of this graph and its nested graphs, and drop initializers nobody
        reads."""
        own = set()
        for value in self.values():
            value.producer, value.consumers = None, []
            own.add(value)
        for node in self.nodes:
            captured: dict[int, Value] = {}
            for subgraph in node.subgraphs.values():
                subgraph.refresh()
                captured.update((id(v), v) for v in subgraph.free_values())
            node.captures = list(captured.values())
        for node in self.nodes:
            for made in node.outputs:
                if made is not None:
                    made.producer = node
            for value in dict.fromkeys(node.reads):
                if value in own:  # an outer value is read by the node that owns this graph
                    value.consumers.append(node)
        kept = {*self.outputs, *self.inputs}
        self.initializers = {k: v for k, v in self.initializers.items() if v.consumers or v in kept}

    def free_values(self) -> list[Value]:
        """Outer values this (nested) graph reads, its own nested graphs included."""
        own = {id(v) for v in self.values()}
        found: dict[int, Value] = {}
        for node in self.nodes:
            found.update((id(v), v) for v in node.reads if id(v) not in own)
        found.update((id(v), v) for v in self.outputs if id(v) not in own)
        return list(found.values())

    def sort(self) -> None:
        """Put nodes in a topological order that keeps the given order where it can. ValueError on a cycle."""
        waiting = {id(v): n for n in self.nodes for v in n.outputs if v is not None}
        done: set[int] = set()
        order: list[Node] = []
        state: dict[int, int] = {}
        for root in self.nodes:
            stack = [(root, False)]
            while stack:
                node, leaving = stack.pop()
                if leaving:
                    state[id(node)] = 2
                    if id(node) not in done:
                        done.add(id(node))
                        order.append(node)
                    continue
                if state.get(id(node)) == 2:
                    continue
                if state.get(id(node)) == 1:
                    raise ValueError(node.name)
                state[id(node)] = 1
                stack.append((node, True))
                for value in node.reads:
                    producer = waiting.get(id(value))
                    if producer is not None and state.get(id(producer)) != 2:
                        if state.get(id(producer)) == 1:
                            raise ValueError(node.name)
                        stack.append((producer, False))
        self.nodes = order
