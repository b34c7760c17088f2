"""Output shapes of the commonest operators, for plans: the general inference goes through protobuf and takes some 50 us a node,
too long for models whose shapes change from run to run.

A rule gives the shapes, or None where it does not apply or the operands do not fit, which leaves the node to the inference of
``onnx``. ``tests/test_shape_rules.py`` holds every rule against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.shapes import Shape, broadcast

Shapes = Sequence[Shape | None]
Constants = Sequence[np.ndarray | None]
Rule = Callable[[Any, Shapes, Constants], list[Shape] | None]

_rules: dict[tuple[str, str], Rule] = {}
"""By domain and operator."""


def output_shapes(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    """Shapes of a node's outputs for the shapes of its inputs (None: omitted) and the values that are known."""
    rule = _rules.get((node.domain, node.op_type))
    return None if rule is None else rule(node, shapes, constants)


def rule(*op_types: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Enter the rule of operators."""

    def enter(function: Rule) -> Rule:
        _rules.update(((domain, op_type), function) for op_type in op_types)
        return function

    return enter


@rule(
    "Abs", "Cast", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
    "IsInf", "IsNaN", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid",
    "Sign", "Sin", "Softmax", "Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu", "CumSum",
)  # fmt: skip
def _same(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return None if shapes[0] is None or len(node.outputs) != 1 else [shapes[0]]


@rule(
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization",
    "MeanVarianceNormalization",
)  # fmt: skip
def _normalized(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    return _same(node, shapes, constants)


@rule(
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow",
    "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
def _broadcast(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    if node.since_version < 7 or any(s is None for s in shapes):
        return None
    found = broadcast([s for s in shapes if s is not None])
    return None if found is None else [found]


@rule("MatMul")
def _matmul(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    a, b = shapes
    if a is None or b is None or min(len(a), len(b)) < 2 or a[-1] != b[-2]:
        return None
    batch = broadcast([a[:-2], b[:-2]])
    return None if batch is None else [(*batch, a[-2], b[-1])]


@rule("Gemm")
def gemm(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    """The product of two matrices, each of which may be transposed."""
    a, b = shapes[:2]
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    m, k = a[::-1] if node.attributes.get("transA", 0) else a
    depth, n = b[::-1] if node.attributes.get("transB", 0) else b
    return [(m, n)] if k == depth else None


@rule("Transpose")
def _transpose(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    (x,) = shapes
    if x is None:
        return None
    order = node.attributes.get("perm", range(len(x) - 1, -1, -1))
    return [tuple(x[d] for d in order)] if sorted(order) == list(range(len(x))) else None


@rule("Reshape")
def _reshape(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, wanted = shapes[0], constants[1] if len(constants) > 1 else None
    if x is None or wanted is None:
        return None
    sizes = [int(n) for n in wanted]
    if not node.attributes.get("allowzero", 0):
        if any(n == 0 and i >= len(x) for i, n in enumerate(sizes)):
            return None
        sizes = [x[i] if n == 0 else n for i, n in enumerate(sizes)]
    total, known = math.prod(x), math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) == 1 and known > 0 and total % known == 0:
        sizes[sizes.index(-1)] = total // known
    return [tuple(sizes)] if min(sizes, default=0) >= 0 and math.prod(sizes) == total else None


@rule("Flatten")
def _flatten(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    (x,) = shapes
    axis = node.attributes.get("axis", 1)
    if x is None or not -len(x) <= axis <= len(x):
        return None
    axis = axis + len(x) if axis < 0 else axis
    return [(math.prod(x[:axis]), math.prod(x[axis:]))]


def _axes(node: Any, constants: Constants, rank: int) -> list[int] | None:
    """Axes from the attribute or the second input, none negative; None where they are not known."""
    given = node.attributes.get("axes")
    if given is None:
        if len(constants) < 2 or constants[1] is None:
            return None
        given = constants[1]
    axes = [int(a) + rank if a < 0 else int(a) for a in np.asarray(given).reshape(-1)]
    return axes if all(0 <= a < rank for a in axes) and len(set(axes)) == len(axes) else None


@rule("Unsqueeze")
def _unsqueeze(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x = shapes[0]
    count = len(node.attributes["axes"]) if "axes" in node.attributes else None
    if count is None:
        count = constants[1].size if len(constants) > 1 and constants[1] is not None else None
    if x is None or count is None:
        return None
    axes = _axes(node, constants, len(x) + count)
    if axes is None:
        return None
    rest = iter(x)
    return [tuple(1 if d in axes else next(rest) for d in range(len(x) + count))]


@rule("Squeeze")
def _squeeze(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x = shapes[0]
    if x is not None and "axes" not in node.attributes and not any(node.inputs[1:]):
        return [tuple(n for n in x if n != 1)]
    axes = None if x is None else _axes(node, constants, len(x))
    if x is None or axes is None or any(x[a] != 1 for a in axes):
        return None
    return [tuple(n for d, n in enumerate(x) if d not in axes)]


@rule("Concat")
def _concat(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    first, axis = shapes[0], node.attributes.get("axis")
    if first is None or axis is None or not -len(first) <= axis < len(first):
        return None
    axis %= len(first)
    total = 0
    for shape in shapes:
        if shape is None or len(shape) != len(first) or any(i != axis and n != first[i] for i, n in enumerate(shape)):
            return None
        total += shape[axis]
    return [(*first[:axis], total, *first[axis + 1 :])]


@rule("Gather")
def _gather(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, indices = shapes
    axis = node.attributes.get("axis", 0)
    if x is None or indices is None or not -len(x) <= axis < len(x):
        return None
    axis %= len(x)
    return [(*x[:axis], *indices, *x[axis + 1 :])]


@rule("GatherND")
def _gather_nd(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, indices = shapes
    batch = node.attributes.get("batch_dims", 0)
    if x is None or not indices or batch or indices[-1] > len(x):
        return None
    return [(*indices[:-1], *x[indices[-1] :])]


@rule("Range")
def _range(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    if any(c is None or c.size != 1 or c.dtype.kind not in "iuf" for c in constants):
        return None
    start, limit, delta = (c.reshape(-1)[0] for c in constants if c is not None)
    if delta == 0:
        return None
    if delta.dtype.kind != "f":
        return [(max(0, -((int(start) - int(limit)) // int(delta))),)]
    with np.errstate(all="ignore"):
        count = float(limit - start) / float(delta)  # the difference in the operands' type, as in onnx
    return [(max(0, math.ceil(count)),)] if abs(count) < 2**62 else None  # nor where it is no number


@rule("ConstantOfShape")
def _constant_of_shape(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    wanted = constants[0]
    return None if wanted is None or (wanted < 0).any() else [tuple(int(n) for n in wanted)]


@rule("Slice")
def _slice(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x = shapes[0]
    if x is None or node.since_version < 10:
        return None
    given = [c for c in (*constants[1:], None, None, None, None)][:4]
    omitted = [i + 1 >= len(node.inputs) or node.inputs[i + 1] is None for i in range(4)]
    if any(c is None and not o for c, o in zip(given, omitted, strict=True)) or given[0] is None or given[1] is None:
        return None
    starts, ends = given[0].tolist(), given[1].tolist()
    axes = given[2].tolist() if given[2] is not None else list(range(len(starts)))
    steps = given[3].tolist() if given[3] is not None else [1] * len(starts)
    if (
        not len(starts) == len(ends) == len(axes) == len(steps)
        or any(not -len(x) <= a < len(x) for a in axes)
        or 0 in steps
    ):
        return None
    result = list(x)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        result[axis] = (
            len(range(*slice(start, end, step).indices(x[axis]))) if step > 0 else _backwards(start, end, step, x[axis])
        )
    return [tuple(result)]


def _backwards(start: int, end: int, step: int, size: int) -> int:
    """Elements of a slice with a negative step: the start is held to the last element, an end below -size means "to the first"."""
    first = min(max(start + size if start < 0 else start, 0), size - 1)
    last = -1 if end < -size else min(end + size if end < 0 else end, size - 1)
    return len(range(first, last, step)) if size else 0


@rule("Split")
def _split(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, axis, count = shapes[0], node.attributes.get("axis", 0), len(node.outputs)
    if x is None or not -len(x) <= axis < len(x):
        return None
    axis %= len(x)
    sizes = node.attributes.get("split")
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        sizes = None if constants[1] is None else constants[1].tolist()
        if sizes is None:
            return None
    if sizes is None:
        if node.since_version < 18 and x[axis] % count:
            return None
        part = -(-x[axis] // count)
        sizes = [part] * (count - 1) + [x[axis] - part * (count - 1)]
    if len(sizes) != count or sum(sizes) != x[axis] or min(sizes) < 0:
        return None
    return [(*x[:axis], int(n), *x[axis + 1 :]) for n in sizes]


@rule("Expand")
def _expand(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x, wanted = shapes[0], constants[1]
    if x is None or wanted is None or (wanted < 0).any():
        return None
    found = broadcast([x, tuple(int(n) for n in wanted)])
    return None if found is None else [found]


@rule(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip
def _reduce(node: Any, shapes: Shapes, constants: Constants) -> list[Shape] | None:
    x = shapes[0]
    if x is None:
        return None
    given = "axes" in node.attributes or (len(node.inputs) > 1 and node.inputs[1] is not None)
    axes = _axes(node, constants, len(x)) if given else []
    if axes is None:
        return None
    if not axes:
        if node.attributes.get("noop_with_empty_axes", 0):
            return [x]
        axes = list(range(len(x)))
    if node.attributes.get("keepdims", 1):
        return [tuple(1 if d in axes else n for d, n in enumerate(x))]
    return [tuple(n for d, n in enumerate(x) if d not in axes)]
