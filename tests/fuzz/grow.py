"""Graphs grown node by node from the operators' strategies (``tests/operators``), whose data are often values that are there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from onnx import NodeProto, defs, helper, numpy_helper
from operators.case import Case, Draw, Unfit, case_of, find_strategy
from operators.cells import Cell, schemas
from operators.model import feeds_of, model_of, output_types

from fuzz.program import Program, typed
from onnxplug.contract.types import element_of
from operators import values

T = TypeVar("T")
ELEMENTS = (
    "float",
    "float",
    "float",
    "int64",
    "float16",
    "double",
    "int32",
    "uint8",
    "int8",
    "bool",
    "bfloat16",
    "string",
)
RANDOM = frozenset(
    ["RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"]
)
LEFT_OUT = RANDOM | frozenset(
    ["If", "Loop", "Scan", "SequenceMap", "ImageDecoder", "Gradient", "Adagrad", "Adam", "Momentum"]
)
"""Random results, what ``fuzz.wrap`` makes, and what onnxruntime does not have."""
SMOOTH = frozenset(
    """
    Abs Add Sub Mul Neg Relu LeakyRelu Sigmoid Tanh Softmax LogSoftmax Erf Gelu HardSigmoid HardSwish Elu Celu
    Selu Mish Softplus Softsign Swish PRelu Max Min Sum Mean Clip MatMul Gemm Einsum Conv ConvTranspose
    AveragePool GlobalAveragePool GlobalMaxPool LpPool ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1
    ReduceSumSquare CumSum LayerNormalization InstanceNormalization RMSNormalization GroupNormalization
    BatchNormalization Identity Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Tile Expand Pad
    DepthToSpace SpaceToDepth Trilu Gather GatherElements GatherND ScatterElements ScatterND Where Resize
    Upsample Compress ReverseSequence CenterCropPad Shape Size Attention RotaryEmbedding LSTM GRU RNN Cos Sin
    Atan
    """.split()  # noqa: SIM905
)
"""Small errors of their operands make small errors: only these go on from values that are rounded."""


class Choices(Draw):
    """The choices of one node, made by a seeded generator; tensors asked for are taken from those of the graph where one fits."""

    def __init__(self, chance: random.Random, cell: Cell, grown: Growth) -> None:
        super().__init__(lambda _: chance.getrandbits(32), cell)
        self._chance, self._grown = chance, grown

    def integer(self, low: int, high: int) -> int:
        return self._chance.randint(low, high)

    def shape(self, least: int = 0, most: int = 4, sizes: Sequence[int] = (3, 2, 1, 4, 0)) -> tuple[int, ...]:
        there = self._grown.tensors(self.op_type in SMOOTH)
        known = [v.shape for v in there if least <= v.ndim <= most and (0 in sizes or v.size)]
        if known and self._chance.random() < 0.8:
            return self._chance.choice(known[-4:])
        if 0 in sizes and self._chance.random() < 0.8:
            sizes = [size for size in sizes if size]  # an empty tensor leaves nothing to compare behind it
        if self._chance.random() < 0.2:
            sizes = [*sizes, 7, 16, 17, 33]
        return super().shape(least, most, sizes)

    def tensor(
        self, shape: Sequence[int], element: str = "", low: float | None = None, high: float | None = None, *, special: bool = False
    ) -> np.ndarray:  # fmt: skip
        element = element or self.element()
        if self._chance.random() < 0.85:
            there = self._grown.tensors(self.op_type in SMOOTH)
            fitting = [v for v in there if _fits(v, shape, element, low, high)]
            if fitting:
                return self._chance.choice(fitting[-4:])
            count = int(np.prod(shape))
            larger = [v for v in there if v.size >= count > 0 and _fits(v, v.shape, element, low, high)]
            if larger and self._chance.random() < 0.6:
                return self._grown.cut(self._chance.choice(larger[-4:]), tuple(shape))
        return _few_digits(values.random(self.rng, tuple(shape), element, low, high), element)


def _few_digits(value: np.ndarray, element: str) -> np.ndarray:
    """Halves, of which sums and products are exact."""
    if not values.is_float(element) or "float8" in element or "float4" in element:
        return value
    return (np.round(value.astype(np.float64) * 2) / 2).astype(value.dtype)


def _fits(value: np.ndarray, shape: Sequence[int], element: str, low: float | None, high: float | None) -> bool:
    if value.shape != tuple(shape) or element_of(value.dtype) != element:
        return False
    if (low is None and high is None) or not value.size or value.dtype.kind in "Ob":
        return True
    wide = value.astype(np.float64)
    return bool((low is None or wide.min() >= low) and (high is None or wide.max() <= high))


@dataclass
class Growth:
    """A graph that grows: its nodes, and every tensor by name."""

    program: Program
    exact: set[str] = field(default_factory=set)

    def tensors(self, rounded: bool = False) -> list[np.ndarray]:
        """The tensors that may be read on: those that hold exact numbers, or all finite ones."""
        known = self.program.values
        return [
            v for n, v in known.items() if isinstance(v, np.ndarray) and (n in self.exact or (rounded and _finite(v)))
        ]

    def cut(self, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The first elements of a tensor in another shape, by nodes that are added."""
        program, count = self.program, int(np.prod(shape))
        source = self.name_of(value)
        assert source is not None
        steps: list[tuple[str, list[np.ndarray], np.ndarray]] = [("Reshape", [np.array([-1])], value.reshape(-1))]
        if count < value.size:
            steps.append(("Slice", [np.array([0]), np.array([count])], value.reshape(-1)[:count]))
        steps.append(("Reshape", [np.array(shape, np.int64)], value.reshape(-1)[:count].reshape(shape)))
        for op_type, constants, result in steps:
            name = f"v{len(program.values)}"
            program.values[name], program.types[name] = result, typed(result)
            operands = [program.give(c, fixed=True) for c in constants]
            program.nodes.append(helper.make_node(op_type, [source, *operands], [name]))
            if self.name_of(value) in self.exact:
                self.exact.add(name)
            source = name
        return result

    def name_of(self, value: Any) -> str | None:
        """The name of a tensor of the graph."""
        return next((name for name, known in self.program.values.items() if known is value), None)


def grow(chance: random.Random, opset: int, size: int) -> Program:
    """A program of about ``size`` nodes."""
    growth = Growth(Program(opset))
    for element in (chance.choice(ELEMENTS), "float"):
        shape = tuple(chance.choice((3, 2, 4, 5, 1, 17)) for _ in range(chance.choice((2, 3, 1, 4))))
        rng = np.random.default_rng(chance.getrandbits(32))
        growth.exact.add(growth.program.give(_few_digits(values.random(rng, shape, element), element), fixed=False))
    for _ in range(4 * size):
        if len(growth.program.nodes) >= size:
            break
        _add(chance, growth)
    return growth.program


def _add(chance: random.Random, growth: Growth) -> None:
    """One more node, unless the operator drawn has no legal node here."""
    cell = _cell(chance, growth)
    strategy = find_strategy(cell.domain, cell.op_type) if cell else None
    if cell is None or strategy is None:
        return
    try:
        case = _case(chance, cell, strategy, growth)
    except (Unfit, ValueError, IndexError, TypeError, StopIteration):
        return  # linked tensors are not always what the strategy drew
    if any(isinstance(v, np.ndarray) and v.dtype.kind == "O" and not _texts(v) for v in case.inputs):
        return
    if case.before or case.captures or case.verify or any(isinstance(v, list | dict) for v in case.inputs):
        return
    outputs = evaluated(case)
    if outputs is not None:
        _enter(chance, growth, case, outputs)


def _case(chance: random.Random, cell: Cell, strategy: Callable[[Draw], Case], growth: Growth) -> Case:
    from unittest import mock

    with mock.patch("operators.case.Draw", lambda draw, cell: Choices(chance, cell, growth)):
        return case_of(lambda _: chance.getrandbits(32), cell, strategy)


def _cell(chance: random.Random, growth: Growth) -> Cell | None:
    """An operator of the program's version, with a type that is there."""
    op_type = chance.choice(_names() if chance.random() < 0.6 else sorted(SMOOTH))
    if not defs.has(op_type, growth.program.opset):
        return None
    version = defs.get_schema(op_type, growth.program.opset).since_version
    if schemas()["", op_type, version].deprecated or op_type in LEFT_OUT:
        return None
    constraints = schemas()["", op_type, version].type_constraints
    if not constraints:
        return Cell("", op_type, version, "", "")
    constraint = constraints[0]
    there = [element_of(v.dtype) for v in growth.tensors(op_type in SMOOTH)] or list(ELEMENTS)
    element = chance.choice(there if chance.random() < 0.8 else ELEMENTS)
    if f"tensor({element})" not in constraint.allowed_type_strs:
        return None
    return Cell("", op_type, version, constraint.type_param_str, f"tensor({element})")


def _names() -> list[str]:
    return sorted({key[1] for key in schemas() if not key[0]})


def evaluated(case: Case) -> list[Any] | None:
    """The outputs of a node; None where it is refused."""
    import onnxplug

    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", "0")
    try:
        with np.errstate(all="ignore"):
            session = onnxplug.InferenceSession(model_of(case), options, providers=["CPUExecutionProvider"])
            return list(session.run(None, feeds_of(case)))
    except Exception:  # what operators' tests are about
        return None


def _enter(chance: random.Random, growth: Growth, case: Case, outputs: list[Any]) -> None:
    program, exact = growth.program, True
    names = []
    for index, value in enumerate(case.inputs):
        value = np.asarray(value) if isinstance(value, np.generic) else value
        name = growth.name_of(value) if isinstance(value, np.ndarray) else ""
        if name is None:
            fixed = index in case.initializers or chance.random() < 0.4
            name = program.give(value, fixed)
            growth.exact.add(name)
        exact &= not name or name in growth.exact
        names.append(name)
    while names and not names[-1]:
        names.pop()
    results = iter(outputs)
    produced = []
    for asked, text in zip(case.present, output_types(case), strict=True):
        name = f"v{len(program.values)}" if asked else ""
        if asked:
            value = next(results)
            program.values[name], program.types[name] = value, text
            if isinstance(value, np.ndarray) and (exact or value.dtype.kind in "iub") and _is_exact(value):
                growth.exact.add(name)
        produced.append(name)
    program.nodes.append(node_of(case, names, produced))


def node_of(case: Case, inputs: list[str], outputs: list[str]) -> NodeProto:
    """The node of a case, with these names."""
    schema = schemas()[case.cell[:3]]
    node = helper.make_node(case.cell.op_type, inputs, outputs, domain=case.cell.domain)
    for name, value in case.attributes.items():
        kind = schema.attributes[name].type.value if name in schema.attributes else None
        value = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return node


def _texts(value: np.ndarray) -> bool:
    return all(isinstance(item, str) for item in value.reshape(-1))


def _finite(value: np.ndarray) -> bool:
    if value.dtype.kind in "Oiub":
        return True
    wide = value.astype(np.float64)
    return bool(np.isfinite(wide).all() and (not wide.size or np.abs(wide).max() < 1e4))


def _is_exact(value: np.ndarray) -> bool:
    """Whether numbers have few digits, which results of exact arithmetic have and rounded ones have not."""
    if value.dtype.kind in "Oiub":
        return True
    few = 4 if value.dtype.itemsize <= 2 else 64
    with np.errstate(all="ignore"):
        wide = value.astype(np.float64) * few
        return bool(
            np.isfinite(wide).all() and (wide == np.round(wide)).all() and (np.abs(wide) < few * few * 16).all()
        )


__all__ = ["grow", "typed"]
