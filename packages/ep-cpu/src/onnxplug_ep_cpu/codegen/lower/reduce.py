"""Reductions over any axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.instructions import Instruction
from onnxplug_ep_cpu.codegen.kernels.reduce import Reduce
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.lines import Lines, source, split
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import NUMBERS, REALS, attributes, axis_of, typed
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides

PART = 4096
"""Longer lines are reduced in parts of this length, which are work for several threads and keep sums accurate."""
ACROSS, FAR = 16, 1 << 14
"""The same across lines, where so many rows at a time are read side by side; but less than ``FAR`` elements are near anyway."""

_SQUARE: ex.Expr = (("leaf", 0), ("mul", 0, 0))
_ABS: ex.Expr = (("leaf", 0), ("abs", 0))
_FORMS: dict[str, tuple[str, ex.Expr, ex.Expr]] = {
    "ReduceSum": ("add", ex.IDENTITY, ex.IDENTITY),
    "ReduceMean": ("mean", ex.IDENTITY, ex.IDENTITY),
    "ReduceMax": ("max", ex.IDENTITY, ex.IDENTITY),
    "ReduceMin": ("min", ex.IDENTITY, ex.IDENTITY),
    "ReduceProd": ("mul", ex.IDENTITY, ex.IDENTITY),
    "ReduceL1": ("add", _ABS, ex.IDENTITY),
    "ReduceL2": ("add", _SQUARE, (("leaf", 0), ("sqrt", 0))),
    "ReduceSumSquare": ("add", _SQUARE, ex.IDENTITY),
    "ReduceLogSum": ("add", ex.IDENTITY, (("leaf", 0), ("log", 0))),
}
"""Operator -> (how elements join, what is done to them before, what to the result)."""


def _supports(node: NodeView) -> str | None:
    whole = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1")
    allowed = NUMBERS if node.op_type in whole else REALS
    if node.op_type == "ReduceMean":
        allowed = allowed - {"int64"}  # whose sum may pass 64 bits
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is not None and axes.constant is None:
        return "axes that are computed are not generated"
    return typed(node.inputs[0], allowed) or typed(node.outputs[0], allowed)


def reduced_axes(node: NodeView, dims: int) -> list[int] | None:
    """The axes of a reduction, all of them by default; None: the operand is the result."""
    given = node.attributes.get("axes")
    if given is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        given = node.inputs[1].constant
    axes = sorted({axis_of(int(a), dims) for a in np.asarray([] if given is None else given).reshape(-1)})
    if axes:
        return axes
    return None if node.attributes.get("noop_with_empty_axes", 0) else list(range(dims))


@lowering(*_FORMS, supports=_supports)
def reduction(b: Lowering, node: NodeView) -> None:
    """One value of each line."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    kind, before, after = _FORMS[node.op_type]
    expr, leaves, _ = source(b, x)
    shape = b.shape(x)
    axes = reduced_axes(node, len(shape))
    expr = _applied(before, expr)
    if axes is None or not shape:
        b.pend(y, Pending(b.shape(y), _applied(after, expr), list(leaves), element=b.element(y)))
        return
    element = b.element(y)
    if kind == "mean" and element == "int32":  # summed as int64
        kind, expr, element = "add", _applied((("leaf", 0), ("to_int64", 0)), expr), "int64"
        count = max(1, int(math.prod(shape[axis] for axis in axes)))
        after = (("leaf", 0), ("int64", count), ("div", 0, 1), ("to_int32", 2))
    _finish(b, y, reduced(b, kind, expr, leaves, shape, axes, element), after)


@lowering("ReduceLogSumExp", supports=_supports)
def log_sum_exp(b: Lowering, node: NodeView) -> None:
    """log of the sum of exponentials, taken relative to the largest element where that is finite."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    tensor, shape = b.read(x), b.shape(y)
    axes = reduced_axes(node, len(tensor.shape))
    if axes is None or not tensor.shape:
        b.define(y, tensor)
        return
    build = ex.Build()
    finite = build("less", build("abs", build("leaf", 1)), build("const", math.inf))
    shift = build("where", finite, build("leaf", 1), build("const", 0.0))
    element = b.element(y)
    largest = reduced(b, "max", ex.IDENTITY, [tensor], tensor.shape, axes, element)
    relative = build.finish(build("exp", build("sub", build("leaf", 0), shift)))
    total = reduced(b, "add", relative, [tensor, largest], tensor.shape, axes, element)
    after = build.finish(build("add", build("log", build("leaf", 0)), shift))
    b.pend(y, Pending(shape, after, [b.reshaped(t, shape) for t in (total, largest)], element=element))


def _norm_supports(node: NodeView) -> str | None:
    known = typed(node.inputs[0], REALS) or typed(node.outputs[0], REALS)
    if known is None and node.attributes.get("p", 2) not in (1, 2):
        return f"p is {node.attributes['p']}"
    return known


@lowering("LpNormalization", supports=_norm_supports)
def lp_normalization(b: Lowering, node: NodeView) -> None:
    """Elements divided by the norm of their line; those of a line of norm 0 stay 0."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    given, tensor = attributes(node, axis=-1, p=2), b.read(x)
    axes = [axis_of(given["axis"], len(tensor.shape))]
    element = b.element(y)
    total = reduced(b, "add", _ABS if given["p"] == 1 else _SQUARE, [tensor], tensor.shape, axes, element)
    build = ex.Build()
    norm = build("leaf", 1) if given["p"] == 1 else build("sqrt", build("leaf", 1))
    one = build("where", build("equal", norm, build("const", 0.0)), build("const", 1.0), norm)
    expr = build.finish(build("div", build("leaf", 0), one))
    b.pend(y, Pending(tensor.shape, expr, [tensor, total], element=element))


def _applied(outer: ex.Expr, inner: ex.Expr) -> ex.Expr:
    """outer(inner(leaves))."""
    build = ex.Build()
    leaves = [build("leaf", i) for i in range(ex.leaf_count(inner))]
    return build.finish(build.include(outer, [build.include(inner, leaves)]))


def _finish(b: Lowering, y: ValueView, result: Tensor, after: ex.Expr) -> None:
    shape = b.shape(y)
    shaped = b.reshaped(result, shape)
    if after == ex.IDENTITY:
        b.define(y, shaped)
    else:
        b.pend(y, Pending(shape, after, [shaped], element=b.element(y)))


def reduced(
    b: Lowering, kind: str, expr: ex.Expr, leaves: Sequence[Tensor], shape: Ints, axes: Sequence[int], element: str
) -> Tensor:
    """``expr`` of tensors of (or broadcast to) ``shape``, reduced over ``axes``, which stay as dimensions of size 1."""
    small = tuple(1 if d in axes else n for d, n in enumerate(shape))
    if 0 in shape:
        result = b.scratch(small, element=element)
        write_map(b.program, b.target, (_nothing(kind, element),), [], result)
        return result
    views = [leaf.broadcast(shape) for leaf in leaves]
    full = [i for i, v in enumerate(views) if all(s or n == 1 for n, s in zip(shape, v.strides, strict=True))]
    if not full:
        views, expr, full = [b.write(Pending(shape, expr, list(leaves), element=element))], ex.IDENTITY, [0]
    main = full[0]
    dims = range(len(shape))
    result = b.scratch(small, sorted(dims, key=lambda d: (-views[main].strides[d], d)), element)
    divisor = math.prod(shape[d] for d in axes)
    if _in_one(b, kind, expr, views, main, axes, result, divisor):
        return result
    laid = _like_main(b, views, main, [result.broadcast(shape)], axes)
    if laid is not None and _in_one(b, kind, expr, laid, main, axes, result, divisor):
        return result
    first = _group(views[main], axes)
    if len(first) == len(axes):
        # nothing is contiguous: lay the operand out with the axes innermost
        made = b.scratch(shape, [*(d for d in dims if d not in axes), *axes], element)
        write_map(b.program, b.target, expr, views, made)
        return reduced(b, kind, ex.IDENTITY, [made], shape, axes, element)
    part = "add" if kind == "mean" else kind
    total = reduced(b, part, expr, views, shape, first, element)
    total = reduced(b, part, ex.IDENTITY, [total], total.shape, [d for d in axes if d not in first], element)
    if kind != "mean":
        return total
    count = b.tensor_of(np.full((1,) * len(shape), divisor, element))
    write_map(b.program, b.target, (("leaf", 0), ("leaf", 1), ("div", 0, 1)), [total, count], result)
    return result


def _nothing(kind: str, element: str) -> Instruction:
    """What a reduction of no elements gives, the mean as with onnxruntime."""
    if element in ("float32", "float64"):
        return "const" if element == "float32" else element, {
            "add": 0.0,
            "mul": 1.0,
            "max": -math.inf,
            "min": math.inf,
            "mean": 0.0,
        }[kind]
    low, high = np.iinfo(element).min, np.iinfo(element).max
    return element, {"add": 0, "mul": 1, "max": int(low), "min": int(high)}[kind]


def _group(tensor: Tensor, axes: Sequence[int]) -> list[int]:
    """Axes that make one: those that merge with the one of smallest stride."""
    ordered = sorted((d for d in axes if tensor.shape[d] != 1), key=lambda d: tensor.strides[d])
    group = ordered[:1]
    for d in ordered[1:]:
        if tensor.strides[d] != tensor.strides[group[-1]] * tensor.shape[group[-1]]:
            break
        group.append(d)
    return [*group, *(d for d in axes if tensor.shape[d] == 1)]


def _like_main(
    b: Lowering, views: Sequence[Tensor], main: int, results: list[Tensor], axes: Sequence[int]
) -> list[Tensor] | None:
    """The views with those that repeat elements laid out as the main one is; None where lines cannot be had by that."""
    whole, laid = views[main], list(views)
    order = sorted(range(len(whole.shape)), key=lambda d: -whole.strides[d])
    small: dict[int, Tensor] = {}
    for i, view in enumerate(views):
        kept = tuple(n if stride else 1 for n, stride in zip(view.shape, view.strides, strict=True))
        if kept != whole.shape:
            small[i] = view.viewed(kept, view.strides)
            laid[i] = view.viewed(kept, dense_strides(kept, order)).broadcast(whole.shape)
    if not small or split([*results, *laid], axes, main=len(results) + main) is None:
        return None
    for i, view in small.items():
        laid[i] = b.copied(view, order).broadcast(whole.shape)
    return laid


def _in_one(
    b: Lowering,
    kind: str,
    expr: ex.Expr,
    views: Sequence[Tensor],
    main: int,
    axes: Sequence[int],
    result: Tensor,
    divisor: int,
) -> bool:
    """Reduce in one call, or long lines in two; False where the axes do not merge or nothing is contiguous."""
    shape = views[main].shape
    lines = split([result.broadcast(shape), *views], axes, main=1 + main)
    if lines is None:
        return False
    _call(b, lines, kind, expr, result.element, divisor)
    return True


def _call(b: Lowering, lines: Lines, kind: str, expr: ex.Expr, element: str, divisor: int) -> None:
    """Reduce lines: long ones part by part, then the parts."""
    count, (rows, *_) = lines.axis[0], lines.rows
    part = PART if lines.along else ACROSS
    if count < 2 * part or (not lines.along and count * rows < FAR):
        lines.call(b, _kernel(lines, kind, expr, element), 1.0 + ex.cost(expr), [divisor])
        return
    chunks, rest = divmod(count, part)
    others = [*(d[0] for d in lines.outer), rows]
    parts = b.scratch((*others, chunks + (rest > 0)), [len(others), *range(len(others))], element)
    *places, step = parts.strides
    outer = [(d[0], s, *d[2:]) for d, s in zip(lines.outer, places, strict=False)]
    row = (rows, places[-1], *lines.rows[2:])
    inner = "add" if kind == "mean" else kind
    for first, chunk, length in ((0, chunks, part), (chunks, 1, rest)):
        moved = [parts.shift(first * step)]
        moved += [v.shift(first * part * s) for v, s in zip(lines.tensors[1:], lines.axis[2:], strict=True)]
        by_chunk = (chunk, step, *(part * s for s in lines.axis[2:]))
        loops = Lines(moved, lines.along, (length, 0, *lines.axis[2:]), row, [*outer, by_chunk])
        if length:
            loops.call(b, _kernel(loops, inner, expr, element), 1.0 + ex.cost(expr), [divisor])
    outer = [(d[0], d[1], s) for d, s in zip(lines.outer, places, strict=False)]
    axis, row = (parts.shape[-1], 0, step), (rows, lines.rows[1], places[-1])
    _call(b, _joining(lines.tensors[0], parts, axis, row, outer), kind, ex.IDENTITY, element, divisor)


def _joining(result: Tensor, parts: Tensor, axis: Ints, rows: Ints, outer: list[Ints]) -> Lines:
    """The parts of each line as lines: across where several lie next to each other."""
    if rows[0] > 1 and rows[1] == rows[2] == 1:
        return Lines((result, parts), False, axis, rows, outer)
    if axis[2] == 1:
        return Lines((result, parts), True, axis, rows, outer)
    return Lines((result, parts), False, axis, (1, 1, 1), [*outer, rows])


def _kernel(lines: Lines, kind: str, expr: ex.Expr, element: str) -> Reduce:
    operands = lines.operands(range(1, len(lines.tensors)))
    return Reduce(lines.along, len(lines.outer), kind, operands, expr, element)
