"""Models of one or a few nodes, with seeded operands: what ``operators.py`` times."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper, parser

OPSET, IR_VERSION = 21, 10
DOMAINS = {"": OPSET, "ai.onnx.ml": 3, "com.microsoft": 1}

WORDS = np.array(["red", "green", "blue", "black", "other"], object)
DRAWN = frozenset({"Bernoulli", "Multinomial"})


@dataclass(frozen=True, slots=True)
class Operand:
    """An input: its type, shape, and the numbers it may have. ``high`` None: normal floats, integers below 100, or booleans."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    low: float = 0
    high: float | None = None
    constant: bool = False
    given: np.ndarray[Any, Any] | None = None

    def within(self, low: float, high: float) -> Operand:
        """With numbers from ``low`` to ``high``, which integers do not reach."""
        return replace(self, low=low, high=high)

    def weight(self) -> Operand:
        """As an initializer of the model."""
        return replace(self, constant=True)

    def fed(self) -> Operand:
        """As an input of the model, whatever it holds."""
        return replace(self, constant=False)

    def values(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """The numbers."""
        if self.given is not None:
            return self.given
        if self.dtype == object:
            return WORDS[rng.integers(0, len(WORDS), self.shape)]
        if self.dtype == np.bool_:
            return rng.random(self.shape) < 0.5
        if self.dtype.kind in "iu":
            return rng.integers(int(self.low), int(100 if self.high is None else self.high), self.shape, self.dtype)
        drawn = rng.standard_normal(self.shape) if self.high is None else rng.uniform(self.low, self.high, self.shape)
        return np.asarray(drawn, self.dtype)

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape)) if self.shape else "scalar"
        if self.dtype == object:
            return f"string[{size}]"
        return f"{self.dtype.kind.replace('b', 'bool') + (str(self.dtype.itemsize * 8) if self.dtype.kind != 'b' else '')}[{size}]"


def given(*values: Any, dtype: str = "i8", shape: tuple[int, ...] | None = None) -> Operand:
    """An initializer of these values: sizes, axes, scales."""
    array = np.asarray(values, dtype).reshape(-1 if shape is None else shape)
    return Operand(array.dtype, array.shape, constant=True, given=array)


def F(*shape: int) -> Operand:
    """float32."""
    return Operand(np.dtype("f4"), shape)


def D(*shape: int) -> Operand:
    """float64."""
    return Operand(np.dtype("f8"), shape)


def H(*shape: int) -> Operand:
    """float16."""
    return Operand(np.dtype("f2"), shape)


def L(*shape: int) -> Operand:
    """int64."""
    return Operand(np.dtype("i8"), shape)


def I(*shape: int) -> Operand:  # noqa: E743
    """int32."""
    return Operand(np.dtype("i4"), shape)


def B(*shape: int) -> Operand:
    """int8."""
    return Operand(np.dtype("i1"), shape, -100)


def U(*shape: int) -> Operand:
    """uint8."""
    return Operand(np.dtype("u1"), shape)


def Q(*shape: int) -> Operand:
    """Booleans."""
    return Operand(np.dtype("?"), shape)


def S(*shape: int) -> Operand:
    """Strings, a few words."""
    return Operand(np.dtype(object), shape)


@dataclass(frozen=True, slots=True)
class Case:
    """A model: its nodes, the operands by name, how many results it gives."""

    name: str
    nodes: tuple[NodeProto, ...]
    operands: Mapping[str, Operand]
    results: tuple[str, ...]

    def model(self) -> ModelProto:
        """The model, its initializers made."""
        drawn = {name: o.values(self._rng(name)) for name, o in self.operands.items() if o.constant}
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(o.dtype), o.shape)
            for name, o in self.operands.items()
            if not o.constant
        ]
        graph = helper.make_graph(
            self.nodes,
            "operator",
            inputs,
            [onnx.ValueInfoProto(name=name) for name in self.results],
            [numpy_helper.from_array(array, name) for name, array in drawn.items()],
        )
        domains = {"", *(node.domain for node in self.nodes)}
        opsets = [helper.make_opsetid(domain, DOMAINS[domain]) for domain in sorted(domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def feeds(self) -> dict[str, np.ndarray[Any, Any]]:
        """The operands that are no initializers."""
        return {name: o.values(self._rng(name)) for name, o in self.operands.items() if not o.constant}

    @property
    def random(self) -> bool:
        """Whether its results are drawn."""
        return any(node.op_type.startswith("Random") or node.op_type in DRAWN for node in self.nodes)

    def _rng(self, operand: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(f"{self.name} {operand}".encode()))


def one(op: str, *operands: Operand | None, results: int = 1, **attributes: Any) -> Case:
    """A model of one node. ``op``: the operator, after its domain and a colon if it is not ONNX's own."""
    domain, _, operator = op.rpartition(":")
    names = [f"x{number}" if operand is not None else "" for number, operand in enumerate(operands)]
    given = {name: operand for name, operand in zip(names, operands, strict=True) if operand is not None}
    outputs = tuple(f"y{number}" for number in range(results))
    node = helper.make_node(operator, names, outputs, domain=domain, **attributes)
    return Case(_title(operator, given, attributes), (node,), given, outputs)


def chain(*lines: str, **operands: Operand) -> Case:
    """A model of several nodes in ONNX's text form, ``t = Mul(x, a)``; the result is ``y``."""
    nodes = tuple(parser.parse_node(line) for line in lines)
    return Case(_title("+".join(node.op_type for node in nodes), operands, {}), nodes, operands, ("y",))


def every(ops: str, *operands: Operand, **attributes: Any) -> Sequence[Case]:
    """A model of one node for each of these operators."""
    return [one(op, *operands, **attributes) for op in ops.split()]


def _title(what: str, operands: Mapping[str, Operand], attributes: Mapping[str, Any]) -> str:
    """What a reader tells a case by: the operator, the operands' types and shapes, short attributes and short given values."""
    shown = [
        str(o.given.tolist()) if o.given is not None and o.given.size <= 8 else f"{o}{' const' if o.constant else ''}"
        for o in operands.values()
    ]
    short = [f"{name}={value}" for name, value in attributes.items() if len(str(value)) <= 24]
    return " ".join([what, *shown, *short])
