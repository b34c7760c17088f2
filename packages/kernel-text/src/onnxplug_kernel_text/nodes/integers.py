"""Products and convolutions of 8-bit tensors, exact in int32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from onnxplug.contract import TensorSpec
from onnxplug_kernel_text.integer_product import COLUMNS, SIDE, Form, integer_product
from onnxplug_kernel_text.layout import broadcast
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type
from onnxplug_kernel_text.nodes.quantize import dynamic
from onnxplug_kernel_text.nodes.windows import window_numbers

_BYTES = ("i8", "u8")
_FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class Side:
    """A factor: its tensor, its zero point and its scale (None: none), with how far apart their entries lie (0: one entry)."""

    ref: Ref
    type: str
    zero: Ref | None
    scale: Ref | None = None
    zero_at: int = 0
    scale_at: int = 0


@dataclass(frozen=True)
class Shape:
    """A batch of products: ``left`` and ``right`` are strides of the batch, of rows and of columns, ``right`` without the last two where
    windows of images are the right factor: ``windows`` are their arguments, of ``rank`` dimensions. See ``integer_product`` for ``period``
    and ``step``."""

    rows: int
    columns: int
    depth: int
    batch: int
    left: tuple[int, int, int]
    right: tuple[int, ...]
    period: int
    step: int = 0
    windows: Sequence[int] = ()
    rank: int = 0


@dataclass(frozen=True)
class Result:
    """Where the product goes, as what (``Form.result``), and what is added: scale, zero point and bias where there are such, a bias of
    ``bias_type`` whose entries lie ``bias_at`` apart for rows and for columns. ``alpha`` is one more scale."""

    ref: Ref
    type: str
    kind: str
    scale: Ref | None = None
    zero: Ref | None = None
    scale_at: int = 0
    zero_at: int = 0
    scale_type: str = "f32"
    bias: Ref | None = None
    bias_type: str = ""
    bias_at: tuple[int, int] = (0, 0)
    relu: bool = False
    alpha: float = 1.0


@dataclass(frozen=True)
class Multiplication:
    """A batch of products, whatever kernel computes it: launches that come before it, and the bytes of scratch memory these share."""

    shape: Shape
    left: Side
    right: Side
    result: Result
    before: Sequence[Launch] = ()
    workspace: int = 0


def by_groups(describe: Callable[[NodeCall], Multiplication | None]) -> Callable[[NodeCall], Job | None]:
    """The launches of what ``describe`` makes of a node: tiles in local memory."""

    def lowered(call: NodeCall) -> Job | None:
        made = describe(call)
        return None if made is None else grouped(call.op_type, made)

    return lowered


def grouped(name: str, made: Multiplication) -> Job:
    """The launches of a batch of products by tiles in local memory."""
    shape, left, right, result = made.shape, made.left, made.right, made.result
    form = Form(
        left.type, right.type, result.type, result.kind, left.zero is not None, right.zero is not None,
        shape.rank, result.scale_type, result.bias_type, shape.rows <= SIDE, result.relu, result.alpha,
    )  # fmt: skip
    tensors = (
        left.ref, right.ref, left.zero, right.zero, left.scale, right.scale, result.scale, result.zero, result.bias, result.ref
    )  # fmt: skip
    numbers = [shape.rows, shape.columns, shape.depth, shape.period, *shape.left, *shape.right, *shape.windows]
    numbers += [shape.rows * shape.columns, shape.columns, shape.step]
    numbers += [left.zero_at, left.scale_at, right.zero_at, right.scale_at, result.scale_at, result.zero_at]
    numbers += result.bias_at
    grid = -(-shape.columns // COLUMNS) * -(-shape.rows // form.rows) * shape.batch
    given = tuple(ref for ref in tensors if ref is not None)
    launch = Launch(integer_product(name, form), name, given, integers(*numbers), grid, SIDE * SIDE)
    return Job([*made.before, launch], made.workspace)


def matmul_integer(call: NodeCall) -> Multiplication | None:
    """MatMulInteger."""
    shape = _matmul(call.input(0), call.input(1))
    return _of_matrices(call, shape, (0, None, 2), (1, None, 3), Result(call.write(), "i32", "int"))


def qlinear_matmul(call: NodeCall, *, relu: bool = False) -> Multiplication | None:
    """QLinearMatMul; with ``relu``, of which nothing is below zero."""
    shape = _matmul(call.input(0), call.input(3))
    out, scale_type = text_type(call.output().dtype), text_type(call.input(6).dtype)
    steps = [_step(call.input(n), None if shape is None else shape.rows, shape) for n in (6, 7)]
    if out not in _BYTES or scale_type not in _FLOATS or steps[0] is None or steps[1] is None:
        return None
    if any(_unlike(call.input(n), call.inputs[n + 1]) for n in (1, 4, 6)):
        return None
    result = Result(
        call.write(), out, "quantized", call.read(6), call.read(7), steps[0], steps[1], scale_type, relu=relu
    )
    return _of_matrices(call, shape, (0, 1, 2), (3, 4, 5), result)


def _unlike(scale: TensorSpec, zero_point: TensorSpec | None) -> bool:
    """Whether a zero point, which a pattern may leave out, is known to have another number of elements than its scale."""
    if zero_point is None or not all(isinstance(d, int) for d in (*scale.shape, *zero_point.shape)):
        return False
    return math.prod(scale.shape) != math.prod(zero_point.shape)


def matmul_integer_to_float(call: NodeCall) -> Multiplication | None:
    """MatMulIntegerToFloat of domain com.microsoft."""
    out = text_type(call.output().dtype)
    shape = _matmul(call.input(0), call.input(1))
    if out not in _FLOATS or (
        call.given(6) is not None and shape is not None and call.input(6).shape != (shape.columns,)
    ):
        return None
    bias = _added(call, 6)
    result = Result(
        call.write(), out, "float", scale_type=out, bias=bias, bias_type=out if bias else "", bias_at=(0, 1)
    )
    return _of_matrices(call, shape, (0, 2, 4), (1, 3, 5), result)


def dynamic_matmul(call: NodeCall, *, alone: bool = False) -> Multiplication | None:
    """DynamicQuantizeMatMul of domain com.microsoft: A is quantized into scratch memory first (``quantize.dynamic``)."""
    a, b = call.input(0), call.input(1)
    shape, zero = _matmul(a, b), call.given(3)
    bias = _added(call, 4)
    if shape is None or text_type(a.dtype) != "f32" or text_type(b.dtype) not in _BYTES:
        return None
    if bias is not None and call.input(4).shape != (shape.columns,):
        return None
    steps = [_step(spec, shape.columns, shape) for spec in (call.input(2), zero)]
    if steps[0] is None or steps[1] is None or (zero is not None and zero.dtype != b.dtype):
        return None
    elements = math.prod(a.shape)
    before, refs, nbytes = dynamic(call.read(0), elements, call.scratch, alone)
    left = Side(refs.numbers, "u8", refs.zero, refs.scale)
    right = Side(
        call.read(1), text_type(b.dtype), call.read(3) if zero is not None else None, call.read(2), steps[1], steps[0]
    )
    result = Result(call.write(), "f32", "float", bias=bias, bias_type="f32" if bias else "", bias_at=(0, 1))
    return Multiplication(shape, left, right, result, before, nbytes)


def attention_projection(call: NodeCall, to: Ref) -> Multiplication | None:
    """The input projection of QAttention of domain com.microsoft: floats, with their bias, at ``to``."""
    x, weights, type_ = call.input(0), call.input(1), text_type(call.input(3).dtype)
    if len(x.shape) != 3 or len(weights.shape) != 2 or call.input(2).shape != weights.shape[1:]:
        return None
    result = Result(to, type_, "float", scale_type=type_, bias=call.read(2), bias_type=type_, bias_at=(0, 1))
    return _of_matrices(call, _matmul(x, weights), (0, 3, 6), (1, 4, 7), result)


def qgemm(call: NodeCall) -> Multiplication | None:
    """QGemm of domain com.microsoft."""
    out = text_type(call.output().dtype)
    (rows, depth), b = call.input(0).shape, call.input(3).shape
    left, right = (0, depth, 1), (0, b[1], 1)
    if call.attributes.get("transA", 0):
        rows, depth, left = depth, rows, (0, 1, depth)
    inner, columns = b
    if call.attributes.get("transB", 0):
        columns, inner, right = *b, (0, 1, b[1])
    if inner != depth or call.output().shape != (rows, columns):
        return None
    bias = _added(call, 6)
    if out not in (*_BYTES, "f32") or any(
        math.prod(s.shape) != 1 for s in (call.given(7), call.given(8)) if s is not None
    ):
        return None
    result = Result(
        call.write(), out, "float" if out == "f32" else "quantized", _added(call, 7), _added(call, 8), bias=bias,
        bias_type="i32" if bias else "", alpha=call.attributes.get("alpha", 1.0),
        bias_at=(0, 0) if bias is None else cast("tuple[int, int]", broadcast(call.input(6).shape, (rows, columns))),
    )  # fmt: skip
    return _of_matrices(call, Shape(rows, columns, depth, 1, left, right, 1), (0, 1, 2), (3, 4, 5), result)


def conv_integer(call: NodeCall) -> Multiplication | None:
    """ConvInteger."""
    return _convolution(call, (0, None, 2), (1, None, 3), Result(call.write(), "i32", "int"))


def qlinear_conv(call: NodeCall, *, relu: bool = False) -> Multiplication | None:
    """QLinearConv, channels first; with ``relu``, of which nothing is below zero."""
    out = text_type(call.output().dtype)
    plain = all(math.prod(call.input(n).shape) == 1 for n in (6, 7)) and not call.attributes.get("channels_last", 0)
    if out not in _BYTES or not plain:
        return None
    bias = _added(call, 8)
    result = Result(
        call.write(), out, "quantized", call.read(6), call.read(7), bias=bias, bias_type="i32" if bias else "", bias_at=(1, 0),
        relu=relu,
    )  # fmt: skip
    return _convolution(call, (0, 1, 2), (3, 4, 5), result)


def _added(call: NodeCall, number: int) -> Ref | None:
    """An input that may be omitted."""
    return None if call.given(number) is None else call.read(number)


Three = tuple[int, int | None, int | None]
"""Numbers of the inputs that are a factor, its scale (None: there is none), its zero point."""


def _of_matrices(call: NodeCall, shape: Shape | None, a: Three, b: Three, result: Result) -> Multiplication | None:
    if shape is None:
        return None
    left, right = _side(call, a, shape.rows, shape), _side(call, b, shape.columns, shape)
    if left is None or right is None:
        return None
    return Multiplication(shape, left, right, result)


def _convolution(call: NodeCall, x: Three, w: Three, result: Result) -> Multiplication | None:
    images, weights, made = call.input(x[0]).shape, call.input(w[0]).shape, call.output().shape
    groups, own = call.attributes.get("group", 1), weights[1]
    depth, columns, rows = math.prod(weights[1:]), math.prod(made[2:]), weights[0] // groups
    shape = Shape(
        rows, columns, depth, images[0] * groups, (rows * depth, depth, 1), (own * math.prod(images[2:]),), groups, rows,
        (own, *window_numbers(call, images[2:], made[2:], weights[2:])), len(images) - 2,
    )  # fmt: skip
    left, right = _side(call, w, weights[0], shape), _side(call, x, 1, shape)
    if left is None or right is None:
        return None
    return Multiplication(shape, left, right, result)


def _matmul(a: TensorSpec, b: TensorSpec) -> Shape | None:
    """The products of MatMul; None where batches are broadcast axis by axis."""
    first = (1, *a.shape) if len(a.shape) == 1 else a.shape
    second = (*b.shape, 1) if len(b.shape) == 1 else b.shape
    rows, depth, columns = first[-2], first[-1], second[-1]
    batch_a, batch_b = math.prod(first[:-2]), math.prod(second[:-2])
    if batch_b == 1:
        rows, batch_a = rows * batch_a, 1
    elif first[:-2] != second[:-2] and batch_a != 1:
        return None
    batch = max(batch_a, batch_b)
    left = (0 if batch_a == 1 else rows * depth, depth, 1)
    right = (0 if batch_b == 1 else depth * columns, columns, 1)
    return Shape(rows, columns, depth, batch, left, right, batch)


def _side(call: NodeCall, numbers: Three, entries: int, shape: Shape) -> Side | None:
    """A factor; None where its type is none of 8 bits, or a parameter is neither one number nor one for each of ``entries``."""
    at, scale, zero = numbers
    type_ = text_type(call.input(at).dtype)
    zero_spec = None if zero is None else call.given(zero)
    steps = [_step(spec, entries, shape) for spec in (zero_spec, None if scale is None else call.input(scale))]
    if type_ not in _BYTES or steps[0] is None or steps[1] is None:
        return None
    if zero_spec is not None and zero_spec.dtype != call.input(at).dtype:
        return None
    refs = [None if n is None or call.given(n) is None else call.read(n) for n in (zero, scale)]
    return Side(call.read(at), type_, refs[0], refs[1], steps[0], steps[1])


def _step(spec: TensorSpec | None, entries: int | None, shape: Shape | None) -> int | None:
    """How far apart the entries of a parameter lie: 0 for one entry; None where they are otherwise than one for each of ``entries``."""
    if spec is None or math.prod(spec.shape) == 1:
        return 0
    alone = shape is None or shape.batch == 1 or shape.rank > 0
    return 1 if alone and len(spec.shape) == 1 and spec.shape[0] == entries else None
