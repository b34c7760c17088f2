"""Element-wise arithmetic with broadcasting, and the launch that every movement along strides shares with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.entry import ALL, FLOATS, INTEGERS, NUMBERS, SIGNED, UNSIGNED, Entry
from onnxplug_ep_opencl.kernels.refusals import many_operands
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Launch, Ref
from onnxplug_kernel_text.elementwise import Operand, elementwise, lines_of
from onnxplug_kernel_text.expression import statements, with_defaults
from onnxplug_kernel_text.layout import Space, Strides, broadcast, dense, space
from onnxplug_kernel_text.types import arithmetic, raw

_ROWS = 32
"""From this extent of the last dimension on, a row of it is a row of work-items: no division by extents for each element."""
_SPAN = 4096
"""Points of a row, or of several short rows, that one work-item of a processor does."""
_SHORT = 4
"""From this extent of the last dimension on, a work-item of a processor does whole rows."""
_INTEGER = """const u64 m_ = x0 < 0 ? (u64)0 - (u64)x0 : (u64)x0; const int s_ = 40 - (int)clz(m_);
  const u64 odd_ = s_ > 0 ? ((m_ >> s_) | ((m_ << (64 - s_)) != 0)) << s_ : m_; const f32 t = x0 < 0 ? -(f32)odd_ : (f32)odd_;"""
_DOUBLE = """f32 t = (f32)x0; const f64 back_ = t;
  if (back_ != x0 && x0 == x0) t = as_float((as_uint(t) - (fabs(back_) > fabs(x0))) | 1u);"""
_ODD = {"f64": _DOUBLE, **dict.fromkeys(("i32", "i64", "u32", "u64"), _INTEGER)}
"""Numbers as float32, rounded to odd: the last bit says whether others were cut off, so that a bfloat16 made of it is rounded once."""


def arithmetics(call: Call) -> list[Launch]:
    """One operator of ``expression.OPERATORS`` over its broadcast inputs."""
    out = call.output()
    given = [(n, spec) for n, spec in enumerate(call.inputs) if spec is not None]
    if call.op_type == "CastLike":
        given = given[:1]
    types = [text_type(spec.dtype) for _, spec in given]
    names = [f"x{n}" for n in range(len(given))]
    if call.op_type == "Clip":  # an omitted lower bound must not make the upper one the lower
        present = {n: name for (n, _), name in zip(given, names, strict=True)}
        names = [present.get(n, "") for n in range(3)]
    result = text_type(out.dtype)
    lines = statements(
        "t", call.op_type, names, types, result, with_defaults(call.op_type, call.version, call.attributes)
    )
    placed = {"axis": 1} if call.op_type == "PRelu" and len(out.shape) > 1 else call.attributes
    walks = [
        aligned(spec.shape, out.shape, placed) if call.version < 7 else broadcast(spec.shape, out.shape)
        for _, spec in given
    ]
    held = None
    if types[0] == "f64" and result == "f16":  # rounded once, from double
        held, lines = ["f64"], ["f64 t = x0;"]
    elif types[0] in _ODD and result == "bf16":
        lines = [_ODD[types[0]]]
    return launch(
        call.target,
        call.op_type,
        [(call.read(n), t) for (n, _), t in zip(given, types, strict=True)],
        [(call.write(), result)],
        space(out.shape, [*walks, dense(out.shape)]),
        " ".join([*lines, "y0 = t;"]),
        held,
    )


def aligned(shape: Sequence[int], to: Sequence[int], attributes: Mapping[str, Any]) -> Strides:
    """Strides of the limited broadcasting of versions before 7, where ``axis`` says which dimension the first one of a smaller operand
    meets; PRelu's slopes meet the channels."""
    axis = attributes.get("axis")
    if axis is None or len(shape) == len(to):
        return broadcast(shape, to)
    missing = len(to) - (axis % len(to)) - len(shape)
    return broadcast((*shape, *[1] * missing), to)


def launch(
    target: Target,
    name: str,
    inputs: Sequence[tuple[Ref, str]],
    outputs: Sequence[tuple[Ref, str]],
    walked: Space,
    body: str,
    held: Sequence[str] | None = None,
) -> list[Launch]:
    """The launch of an element-wise kernel over a space; none where it is empty. Operands come with their types, the space has their
    strides, inputs before outputs."""
    if walked.points == 0:
        return []
    reach = max(sum((n - 1) * abs(s) for n, s in zip(walked.shape, own, strict=True)) for own in walked.strides)
    index = "i32" if max(reach, walked.points) < 2**31 - 4096 else "i64"
    rows = (
        len(walked.shape) > 1
        and walked.shape[-1] >= _ROWS
        and (target.processor or walked.points // walked.shape[-1] < 65536)
    )
    span = _SPAN if target.processor and walked.shape[-1] >= _SHORT else 0
    types = [t for _, t in (*inputs, *outputs)]
    operands = [Operand(t, pattern) for t, pattern in zip(types, walked.patterns, strict=True)]
    source = elementwise(
        name, operands[: len(inputs)], operands[len(inputs) :], body, index=index, rows=rows, span=span, held=held
    )
    number = np.int32 if index == "i32" else np.int64
    items, group = extent(target, walked, rows, span)
    refs = [ref for ref, _ in (*inputs, *outputs)]
    return [Launch(source, name, refs, [number(s) for s in walked.scalars], items, group)]


def extent(target: Target, walked: Space, rows: bool, span: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Work-items and their grouping."""
    if span:
        wide = walked.shape[-1]
        return (-(-wide // span), -(-(walked.points // wide) // lines_of(wide, span))), (1, 1)
    wide = walked.shape[-1] if rows else walked.points
    group = group_of(target, wide)
    padded = -(-wide // group) * group
    return ((padded, walked.points // walked.shape[-1]), (group, 1)) if rows else ((padded,), (group,))


def group_of(target: Target, wide: int) -> int:
    """Work-items of a group, of that many in a row. Few sizes, because drivers compile a kernel for each."""
    return min(64 if wide < 4096 else 1024 if target.processor else 256, target.largest_group)


def copy(
    target: Target, name: str, source: Ref, target_ref: Ref, shape: Sequence[int], walks: tuple[Strides, Strides]
) -> list[Launch]:
    """Elements of one tensor to places of another: ``walks`` are the strides of reading and of writing over ``shape``."""
    type_ = raw(source.size)
    return launch(target, name, [(source, type_)], [(target_ref, type_)], space(shape, walks), "y0 = x0;")


def fill(target: Target, name: str, destination: Ref, type_: str, count: int, value: str) -> list[Launch]:
    """The same value everywhere."""
    return launch(
        target, name, [], [(destination, type_)], space((count,), [(1,)]), f"y0 = ({arithmetic(type_)}){value};"
    )


def entries() -> list[Entry]:
    """What is claimed."""
    made: list[Entry] = []

    def each(names: str, since: int, until: int, *, arity: int = 1, refuse: Any = None, **types: Sequence[str]) -> None:
        inplace = tuple(range(arity))
        made.extend(Entry(n, since, until, types, arithmetics, inplace=inplace, refuse=refuse) for n in names.split())

    each("Add Sub Mul Div", 6, 14, arity=2, T=NUMBERS)
    each("Mod", 10, 28, arity=2, T=NUMBERS)
    each("Pow", 1, 15, arity=2, T=FLOATS, T1=NUMBERS)
    each("And Or Xor", 1, 7, arity=2, T=("bool",))
    each("Not", 1, 1, T=("bool",))
    each("Equal", 1, 19, arity=2, T=ALL)
    each("Less Greater", 1, 13, arity=2, T=NUMBERS)
    each("LessOrEqual GreaterOrEqual", 12, 16, arity=2, T=NUMBERS)
    each("BitwiseAnd BitwiseOr BitwiseXor", 18, 18, arity=2, T=INTEGERS)
    each("BitwiseNot", 18, 18, T=INTEGERS)
    each("BitShift", 11, 11, arity=2, T=UNSIGNED)
    each("BitShift", 28, 28, arity=2, T=INTEGERS)
    each("Sum Mean", 6, 13, arity=2, refuse=many_operands, T=FLOATS)
    each("Max Min", 6, 13, arity=2, refuse=many_operands, T=NUMBERS)
    each("Where", 9, 16, arity=3, B=("bool",), T=ALL)
    each("Cast", 6, 28, T1=ALL, T2=ALL)
    each("CastLike", 15, 25, T1=ALL, T2=ALL)
    each("Abs Neg", 6, 13, T=NUMBERS)
    each("Sign", 9, 13, T=NUMBERS)
    each("Reciprocal Sqrt Exp Floor Ceil Log Sigmoid Tanh", 6, 13, T=FLOATS)
    each("Erf", 9, 13, T=FLOATS)
    each("Round", 11, 22, T=FLOATS)
    each("Sin Cos Tan Asin Acos Atan", 7, 22, T=FLOATS)
    each("Sinh Cosh Asinh Acosh Atanh", 9, 22, T=FLOATS)
    each("IsNaN", 9, 20, T1=FLOATS, T2=("bool",))
    each("IsInf", 10, 20, T1=FLOATS, T2=("bool",))
    each("Relu", 6, 14, T=(*FLOATS, *SIGNED))
    each("Softplus Softsign", 1, 22, T=FLOATS)
    each("Mish", 18, 22, T=FLOATS)
    each("HardSigmoid Elu Selu", 6, 22, T=FLOATS)
    each("HardSwish", 14, 22, T=FLOATS)
    each("Celu", 12, 28, T=FLOATS)
    each("Gelu", 20, 20, T=FLOATS)
    each("Swish", 24, 24, T=FLOATS)
    each("LeakyRelu", 6, 16, T=FLOATS)
    each("PRelu", 6, 16, arity=2, T=FLOATS)
    each("ThresholdedRelu", 10, 22, T=FLOATS)
    each("Shrink", 9, 9, T=NUMBERS)
    each("Clip", 6, 13, T=NUMBERS)
    return made
