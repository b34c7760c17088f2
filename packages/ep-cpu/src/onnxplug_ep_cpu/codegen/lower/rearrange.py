"""Rearranging by position: blocks of channels and pixels, triangles, identities, one-hot rows, reversed sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.counting import counted
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.scatter import moved
from onnxplug_ep_cpu.codegen.lower.support import ANY, attributes, axis_of, of, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides

_KINDS = {"float32": "const", "float64": "float64", "int32": "int32", "int64": "int64", "bool": "bool"}


# ---- blocks


def _blocks(node: NodeView) -> str | None:
    return of(SIZES)(node) or (None if rank(node.inputs[0]) == 4 else "its operand is no image")


@lowering("DepthToSpace", supports=_blocks)
def depth_to_space(b: Lowering, node: NodeView) -> None:
    """Blocks of channels become blocks of pixels."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    _require_equal(b, x, y)
    by_depth, blocks, image = _forms(node, b.shape(y))
    _put(b, y, _cut(b.read(x), blocks).transposed((0, 3, 4, 1, 5, 2) if by_depth else (0, 1, 4, 2, 5, 3)), image)


@lowering("SpaceToDepth", supports=_blocks)
def space_to_depth(b: Lowering, node: NodeView) -> None:
    """Blocks of pixels become blocks of channels."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    _require_equal(b, x, y)
    by_depth, blocks, image = _forms(node, b.shape(x))
    _put(b, y, _cut(b.read(x), image).transposed((0, 3, 5, 1, 2, 4) if by_depth else (0, 1, 3, 5, 2, 4)), blocks)


def _require_equal(b: Lowering, x: ValueView, y: ValueView) -> None:
    if math.prod(b.shape(x)) != math.prod(b.shape(y)):
        raise Unsupported("blocks do not go into the image")


def _forms(node: NodeView, shape: Ints) -> tuple[bool, list[Ints], list[Ints]]:
    """Whether depth comes last in a block, and how dimensions are cut: of the tensor with blocks of channels, and of the image,
    whose shape is given."""
    size, (n, depth, height, width) = node.attributes["blocksize"], shape
    by_depth = node.attributes.get("mode", "DCR") == "DCR"
    channels = (size, size, depth) if by_depth else (depth, size, size)
    rows, columns = height // size, width // size
    return by_depth, [(n,), channels, (rows,), (columns,)], [(n,), (depth,), (rows, size), (columns, size)]


def _put(b: Lowering, y: ValueView, parts: Tensor, groups: Sequence[Ints]) -> None:
    """The result, whose dimensions cut into ``groups`` are those of ``parts``."""
    result = b.output(y, element=parts.element)
    if result.size:
        copy(b.program, b.target, parts, _cut(result, groups))


def _cut(tensor: Tensor, groups: Sequence[Ints]) -> Tensor:
    """A view whose dimensions are the parts of the tensor's, a group for each."""
    pairs = zip(tensor.strides, groups, strict=True)
    strides = tuple(stride * s for stride, group in pairs for s in dense_strides(group))
    return tensor.viewed(tuple(n for group in groups for n in group), strides)


# ---- by position


def _triangle(node: NodeView) -> str | None:
    diagonal = node.inputs[1] if len(node.inputs) > 1 else None
    if diagonal is not None and diagonal.constant is None:
        return "a diagonal that is computed is not generated"
    known = typed(node.inputs[0], ANY) or typed(node.outputs[0], ANY)
    return known or ("its operand is no matrix" if rank(node.inputs[0]) < 2 else None)


@lowering("Trilu", supports=_triangle)
def trilu(b: Lowering, node: NodeView) -> None:
    """The upper or lower triangles of matrices, zero elsewhere."""
    (x, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    given = b.numbers(rest[0]) if rest and rest[0] is not None else [0]
    assert given is not None
    *_, rows, columns = shape = b.shape(y)
    build = ex.Build()
    value, row, column = (build("leaf", i) for i in range(3))
    bound = build("add", row, build("int32", max(-(2**30), min(2**30, given[0]))))
    kept = build("greater_equal" if node.attributes.get("upper", 1) else "less_equal", column, bound)
    element = b.element(x)
    result = build.finish(build("where", kept, value, build(_KINDS[element], 0)))
    b.pend(y, Pending(shape, result, [b.read(x), counted(b, rows, rows=True), counted(b, columns)], element=element))


@lowering("EyeLike", supports=lambda node: typed(node.outputs[0], ANY))
def eye_like(b: Lowering, node: NodeView) -> None:
    """Ones on a diagonal of a matrix of the operand's shape."""
    (y,) = node.outputs
    assert y is not None
    rows, columns = shape = b.shape(y)
    build, element = ex.Build(), b.element(y)
    offset = build("int32", max(-(2**30), min(2**30, attributes(node, k=0)["k"])))
    there = build("equal", build("leaf", 1), build("add", build("leaf", 0), offset))
    result = build.finish(build("where", there, build(_KINDS[element], 1), build(_KINDS[element], 0)))
    b.pend(y, Pending(shape, result, [counted(b, rows, rows=True), counted(b, columns)], element=element))


def _one_hot(node: NodeView) -> str | None:
    known = typed(node.inputs[0], {"int32", "int64"})
    return known or typed(node.inputs[2], ANY) or typed(node.outputs[0], ANY)


@lowering("OneHot", supports=_one_hot)
def one_hot(b: Lowering, node: NodeView) -> None:
    """The second value where the place along a new axis is the index, the first elsewhere."""
    (indices, depth, values), (y,) = node.inputs, node.outputs
    assert indices is not None and depth is not None and values is not None and y is not None
    known = b.numbers(depth)
    if known is None:
        raise Unsupported(f"'{depth.name}' depends on data")
    if known[0] < 1:
        raise Unsupported("there are no classes")
    shape, index, both = b.shape(y), b.read(indices), b.dense(values)
    axis = axis_of(attributes(node, axis=-1)["axis"], len(shape))
    wide = index.viewed(
        (*index.shape[:axis], 1, *index.shape[axis:]), (*index.strides[:axis], 0, *index.strides[axis:])
    )
    behind = len(shape) - 1 - axis
    place = counted(b, shape[axis]).viewed((shape[axis], *[1] * behind), (1, *[0] * behind))
    build, element = ex.Build(), b.element(indices)
    at, count = build("leaf", 0), build(element, known[0])
    if node.since_version >= 11:
        at = build("where", build("less", at, build(element, 0)), build("add", at, count), at)
    there = build("equal", at, build(f"to_{element}", build("leaf", 1)))
    result = build.finish(build("where", there, build("leaf", 3), build("leaf", 2)))
    leaves = [wide, place, *(both.shift(i).viewed((1,), (0,)) for i in range(2))]
    b.pend(y, Pending(shape, result, list(leaves), element=b.element(y)))


def _reversible(node: NodeView) -> str | None:
    x, lengths = node.inputs
    axes = [attributes(node, batch_axis=1, time_axis=0)[name] for name in ("batch_axis", "time_axis")]
    if sorted(axes) != [0, 1]:
        return "its axes are not the first two"
    return typed(x, SIZES) or typed(lengths, {"int64"}) or ("its operand is a vector" if rank(x) < 2 else None)


@lowering("ReverseSequence", supports=_reversible)
def reverse_sequence(b: Lowering, node: NodeView) -> None:
    """The first steps of each batch entry in reverse order, as many as its length says."""
    (x, lengths), (y,) = node.inputs, node.outputs
    assert x is not None and lengths is not None and y is not None
    data, axis = b.read(x), attributes(node, time_axis=0)["time_axis"]
    steps, counts = counted(b, data.shape[axis], rows=axis == 0), b.read(lengths)
    if axis == 1:
        counts = counts.viewed((*counts.shape, 1), (*counts.strides, 0))
    build = ex.Build()
    step, count = build("to_int64", build("leaf", 0)), build("leaf", 1)
    back = build("sub", build("sub", count, build("int64", 1)), step)
    some = build("where", build("less", step, count), back, step)
    none = build("int64", 2**62)  # no place: the kernel that is asked then says what is wrong
    place = build.finish(build("where", build("less", count, build("int64", 0)), none, some))
    index = b.write(Pending(data.shape[:2], place, [steps, counts], element="int64"))
    places = index.viewed(data.shape, (*index.strides, *[0] * (len(data.shape) - 2)))
    moved(b, "gather", axis, data, b.output(y, element=data.element), places)
