"""Derivative rules and the writer they write with. A rule gives, for the adjoints of a node's outputs, those of its inputs.

An adjoint is the derivative of the sum of a result's elements by a value, in the value's shape. Rules are entered by
``@rule``; the families are in ``derivatives_*``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.types import TensorType
from onnxplug.graph.infer import infer_node
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.making import make_node
from onnxplug.graph.value import Value

OPSET = 18
"""The operator set that derivatives are written in, whatever the model imports: axes and splits are inputs in it."""
FLOATS = frozenset({"float16", "bfloat16", "float", "double"})

Adjoints = Sequence[Value | None]
Rule = Callable[["Writer", Node, Any], Adjoints]
"""(writer, node, adjoint) -> adjoints of the node's inputs, None where there is none, trailing ones left out. The adjoint is that of
the only output; rules entered with ``many`` get a list, None for outputs nothing depends on."""

RULES: dict[str, Rule] = {}
"""By operator of the default domain."""
CONSTANT = frozenset(
    {"Bernoulli", "Ceil", "EyeLike", "Floor", "RandomNormalLike", "RandomUniformLike", "Round", "Sign"}
)
"""Operators whose derivative is zero wherever there is one."""


class Underivable(Exception):
    """A rule cannot say what the derivative of this node is: why."""


def rule(*op_types: str, many: bool = False) -> Callable[[Rule], Rule]:
    """Enter the derivative of operators."""

    def enter(function: Rule) -> Rule:
        single: Rule = lambda t, node, outputs: function(t, node, outputs[0])  # noqa: E731
        RULES.update(dict.fromkeys(op_types, function if many else single))
        return function

    return enter


class Writer:
    """Appends nodes to a graph: ``t("Mul", a, b)`` is the value of a new node, typed at once."""

    def __init__(self, graph: Graph, prefix: str, origin: str, active: set[Value]) -> None:
        self.graph, self._prefix, self._origin, self.active = graph, prefix, origin, active

    def __call__(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """The only output of a new node."""
        return self.many(op_type, inputs, 1, **attributes)[0]

    def many(self, op_type: str, inputs: Sequence[Value | None], outputs: int, **attributes: Any) -> list[Value]:
        """The outputs of a new node."""
        graph = self.graph
        made = [Value(graph.names.value(f"{self._prefix}{op_type}")) for _ in range(outputs)]
        name = f"{self._prefix}{op_type}"
        graph.nodes.append(make_node(graph, name, op_type, OPSET, inputs, made, attributes, self._origin))
        return made

    def ints(self, *numbers: int) -> Value:
        """A constant int64 vector."""
        return self.graph.add_constant(f"{self._prefix}ints", np.array(numbers, np.int64))

    def scalar(self, number: int) -> Value:
        """A constant int64 of no dimensions."""
        return self.graph.add_constant(f"{self._prefix}scalar", np.array(number, np.int64))

    def again(self, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
        """The outputs of a copy of a node, with other inputs."""
        graph = self.graph
        made = [Value(graph.names.value(f"{self._prefix}{node.op_type}")) for _ in node.outputs]
        name = graph.names.node(f"{self._prefix}{node.op_type}")
        copy = Node(
            name,
            node.op_type,
            "",
            node.since_version,
            inputs,
            made,
            node.attributes,
            node.attribute_protos,
            node.schema,
        )
        copy.origin = self._origin
        infer_node(graph, copy)
        graph.nodes.append(copy)
        return made

    def number(self, number: float, like: Value) -> Value:
        """A constant of no dimensions, of the type of ``like``."""
        return self.graph.add_constant(f"{self._prefix}number", np.array(number, _tensor(like).dtype))

    def shape(self, value: Value) -> Value:
        """The shape of a value."""
        static = _tensor(value).static_shape
        return self("Shape", value) if static is None else self.ints(*static)

    def rank(self, value: Value) -> int:
        """The number of dimensions; Underivable when it is not known."""
        shape = value.shape
        if shape is None:
            raise Underivable(f"the rank of '{value.name}' is not known")
        return len(shape)

    def sizes(self, value: Value, first: int = 0) -> tuple[int, ...]:
        """The dimensions from ``first`` on; Underivable unless they are numbers."""
        found = (value.shape or (None,))[first:]
        numbers = tuple(d for d in found if isinstance(d, int))
        if value.shape is None or len(numbers) != len(found):
            raise Underivable(f"the shape of '{value.name}' is not known")
        return numbers

    def full(self, value: Value, number: float) -> Value:
        """An array shaped and typed like ``value``, of one number."""
        return self("Expand", self.number(number, value), self.shape(value))

    def reshape(self, value: Value, like: Value) -> Value:
        """``value`` in the shape of ``like``."""
        return value if _same(value, like) else self("Reshape", value, self.shape(like), allowzero=1)

    def expand(self, value: Value, like: Value) -> Value:
        """``value`` broadcast to the shape of ``like``."""
        return value if _same(value, like) else self("Expand", value, self.shape(like))

    def collect(self, adjoint: Value, like: Value) -> Value:
        """The adjoint summed over what was broadcast from the shape of ``like``."""
        if _same(adjoint, like):
            return adjoint
        have, want = adjoint.shape, like.shape
        if have is not None and want is not None:
            lead = len(have) - len(want)
            pairs = list(zip(have[lead:], want, strict=True))
            if all(isinstance(w, int) or (w == h and w is not None) for h, w in pairs):
                axes = [*range(lead), *(lead + i for i, (h, w) in enumerate(pairs) if w == 1 and h != 1)]
                return self.reshape(self("ReduceSum", adjoint, self.ints(*axes)) if axes else adjoint, like)
        mine, its = self("Shape", adjoint), self("Shape", like)
        ones = self("Expand", self.ints(1), self("Sub", self("Shape", mine), self("Shape", its)))
        unequal = self("Not", self("Equal", self("Concat", ones, its, axis=0), mine))
        axes_ = self("Reshape", self("NonZero", unequal), self.ints(-1))
        return self("Reshape", self("ReduceSum", adjoint, axes_, noop_with_empty_axes=1), its, allowzero=1)

    def transposed(self, value: Value) -> Value:
        """The last two axes swapped."""
        rank = self.rank(value)
        return self("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])

    def cast(self, value: Value, like: Value) -> Value:
        """``value`` in the type of ``like``."""
        from onnxplug.contract.types import ELEMENT_CODES

        element = _tensor(like).element
        return value if _tensor(value).element == element else self("Cast", value, to=ELEMENT_CODES[element])


def is_float(value: Value | None) -> bool:
    """Whether a derivative by the value can exist; a value of unknown type may have one."""
    return value is not None and (
        value.type is None or (isinstance(value.type, TensorType) and value.type.element in FLOATS)
    )


def operand(node: Node, index: int) -> Value | None:
    """An input of a node, None when it is omitted."""
    return node.inputs[index] if index < len(node.inputs) else None


def given(node: Node, index: int = 0) -> Value:
    """An input that the operator must have."""
    value = node.inputs[index]
    assert value is not None
    return value


def result(node: Node, index: int = 0) -> Value:
    """An output that the operator must have."""
    value = node.outputs[index]
    assert value is not None
    return value


def numbers(node: Node, name: str, index: int) -> list[int] | None:
    """Whole numbers that were an attribute and became an input; None when there are none. Underivable when only a run
    knows them."""
    if name in node.attributes:
        return list(node.attributes[name])
    value = operand(node, index)
    if value is None:
        return None
    if value.constant is None:
        raise Underivable(f"its {name} are not constant")
    return [int(n) for n in value.constant.reshape(-1)]


def _same(a: Value, b: Value) -> bool:
    return a.shape is not None and a.shape == b.shape and None not in a.shape


def _tensor(value: Value) -> TensorType:
    if not isinstance(value.type, TensorType):
        raise Underivable(f"the type of '{value.name}' is not known")
    return value.type
