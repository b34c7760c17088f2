"""Shapes and moves: elements stay what they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import ELEMENT_CODES, numpy_dtype
from operators import values
from operators.case import Case, Draw, Unfit, strategy

TYPES_WITHOUT_TENSOR_CONSTANTS: frozenset[str] = frozenset()


def ints(*numbers: int) -> np.ndarray:
    """A vector of int64."""
    return np.array(numbers, np.int64)


def value_of(d: Draw, type_: str, shape: tuple[int, ...] | None = None) -> Any:
    """A value of any type: a tensor, a sequence, an optional that holds something."""
    if type_.startswith("optional("):
        return value_of(d, type_[9:-1], shape)
    if type_.startswith("seq("):
        return [value_of(d, type_[4:-1], shape) for _ in range(d.pick(2, 1, 3))]
    return d.tensor(d.shape() if shape is None else shape, values.element_name(type_))


@strategy("Identity")
def identity(d: Draw) -> Case:
    return Case([value_of(d, d.type("V" if d.version >= 14 else "T"))])


@strategy("Shape", "Size")
def shape_(d: Draw) -> Case:
    shape = d.shape()
    attributes = (
        d.maybe(start=d.integer(-5, 5), end=d.integer(-5, 5)) if d.op_type == "Shape" and d.version >= 15 else {}
    )
    return Case([d.tensor(shape)], attributes)


@strategy("Reshape")
def reshape(d: Draw) -> Case:
    shape = d.shape()
    total = int(np.prod(shape))
    target = list(d.pick(shape[::-1], (total,), (1, *shape), (total, 1)))
    attributes: dict[str, Any] = {}
    zero = d.version >= 14 and 0 in target and -1 not in target
    if d.version >= 14:
        attributes = {"allowzero": 1} if zero else d.maybe(allowzero=0)
    if total and target and d.flag():
        target[d.integer(0, len(target) - 1)] = -1
    elif not zero and len(target) == len(shape) and target and d.flag():
        at = d.integer(0, len(target) - 1)
        if target[at] == shape[at]:
            target[at] = 0
    if 0 in target and not zero and d.version < 14:
        target = [0 if i < len(shape) and size == shape[i] else size for i, size in enumerate(target)]
        if any(size == 0 and (i >= len(shape) or shape[i]) for i, size in enumerate(target)):
            target = [0] * len(shape)
    x = d.tensor(shape)
    if d.version == 1:
        return Case([x], {"shape": target, **({"consumed_inputs": [0]} if d.flag() else {})})
    return Case([x, np.array(target, np.int64)], attributes)


@strategy("Flatten")
def flatten(d: Draw) -> Case:
    shape = d.shape(1 if d.version < 9 else 0)
    return Case(
        [d.tensor(shape)],
        {"axis": d.integer(-len(shape) if d.version >= 11 else 0, len(shape))} if not shape or d.flag() else {},
    )


@strategy("Squeeze")
def squeeze(d: Draw) -> Case:
    shape = d.shape(1)
    ones = [axis for axis, size in enumerate(shape) if size == 1 and d.pick(True, False)]
    axes = [a - len(shape) if d.version >= 11 and d.flag() else a for a in ones]
    if d.version < 13:
        return Case([d.tensor(shape)], {"axes": axes} if axes else {})
    return Case([d.tensor(shape), np.array(axes, np.int64) if axes else None])


@strategy("Unsqueeze")
def unsqueeze(d: Draw) -> Case:
    shape = d.shape()
    rank = len(shape) + d.pick(1, 2)
    axes = sorted({d.integer(0, rank - 1) for _ in range(rank - len(shape))})
    rank = len(shape) + len(axes)
    axes = [a if a < rank else rank - 1 for a in axes]
    if len(set(axes)) < len(axes):
        axes = axes[:1]
        rank = len(shape) + 1
        axes = [min(axes[0], rank - 1)]
    if d.version >= 11 and d.flag():
        axes = [a - rank for a in axes]
    if d.version < 13:
        return Case([d.tensor(shape)], {"axes": axes})
    return Case([d.tensor(shape), np.array(axes, np.int64)])


@strategy("Transpose")
def transpose(d: Draw) -> Case:
    shape = d.shape()
    order = list(range(len(shape)))
    d.rng.shuffle(order)
    return Case([d.tensor(shape)], d.maybe(perm=order) if order else {})


@strategy("Concat")
def concat(d: Draw) -> Case:
    shape = d.shape(2 if d.version == 1 else 1)
    axis = d.axis(len(shape)) if d.version >= 11 else d.integer(0, len(shape) - 1)
    axis = 1 if d.version == 1 and d.flag() else axis
    at = axis % len(shape)
    parts = [d.tensor((*shape[:at], d.integer(0, 3), *shape[at + 1 :])) for _ in range(d.pick(2, 1, 3))]
    return Case(parts, {} if d.version == 1 and axis == 1 and d.flag() else {"axis": axis})


@strategy("Split")
def split(d: Draw) -> Case:
    count = d.pick(2, 1, 3)
    shape = list(d.shape(1))
    axis = d.axis(len(shape)) if d.version >= 11 else d.integer(0, len(shape) - 1)
    sizes = [d.integer(0, 3) for _ in range(count)]
    uneven = d.pick(True, False)
    if not uneven:
        sizes = [d.integer(1, 3)] * count
    if not uneven and d.version >= 18 and count > 1 and sizes[0] > 1 and d.flag():
        sizes[-1] -= 1
    shape[axis] = sum(sizes)
    attributes = {"axis": axis} if axis % len(shape) or d.flag() else {}
    x = d.tensor(shape)
    if d.version == 1:
        as_input = d.flag()
        if as_input and uneven:
            return Case([x, d.tensor((0,), d.element())], attributes)
        return Case([x], {**attributes, **({"split": sizes} if uneven else {})}, count)
    if d.version < 13:
        return Case([x], {**attributes, **({"split": sizes} if uneven else {})}, count)
    if d.version >= 18 and not uneven:
        return Case([x], {**attributes, "num_outputs": count}, count)
    return Case([x, ints(*sizes) if uneven else None], attributes, count)


@strategy("Slice")
def slice_(d: Draw) -> Case:
    shape = d.shape(1)
    axes = [a for a in range(len(shape)) if d.pick(True, False)] or [0]
    if d.version < 10:
        bounds = [(d.integer(-5, 5), d.integer(-5, 5)) for _ in axes]
        starts, ends = [list(x) for x in zip(*bounds, strict=True)]
        whole = axes == list(range(len(axes)))
        return Case(
            [d.tensor(shape)], {"starts": starts, "ends": ends, **({} if whole and d.flag() else {"axes": axes})}
        )
    dtype = numpy_dtype(d.element("Tind"))
    big = np.iinfo(dtype).max
    starts = [d.pick(0, 1, -1, -2, 5, -9) for _ in axes]
    ends = [d.pick(2, big, -1, 1, -9, 0) for _ in axes]
    steps = [d.pick(1, 2, -1, -2, big) for _ in axes]
    signed = [a - len(shape) if d.version >= 11 and d.flag() else a for a in axes]
    with_axes = axes != list(range(len(axes))) or d.flag()
    inputs: list[Any] = [
        d.tensor(shape),
        starts,
        ends,
        signed if with_axes else None,
        steps if d.pick(True, False) else None,
    ]
    return Case([inputs[0], *(None if v is None else np.array(v, dtype) for v in inputs[1:])])


@strategy("Tile")
def tile(d: Draw) -> Case:
    shape = d.shape(1)
    if d.version == 1:
        element = d.element()
        amounts = [np.array(v).astype(numpy_dtype(element)) for v in (d.integer(1, 3), d.integer(0, len(shape) - 1))]
        return Case(
            [d.tensor(shape, element), *amounts], types={"in1": f"tensor({element})", "in2": f"tensor({element})"}
        )
    return Case([d.tensor(shape), np.array([d.pick(2, 1, 3, 0) for _ in shape], np.int64)])


@strategy("Expand")
def expand(d: Draw) -> Case:
    shape = d.shape()
    source = d.broadcastable(shape)
    target = tuple(
        1 if i >= len(shape) - len(source) and d.flag() and source[i - len(shape)] == s else s
        for i, s in enumerate(shape)
    )
    return Case([d.tensor(source), ints(*target)])


@strategy("Pad")
def pad(d: Draw) -> Case:
    mode = d.pick("constant", "reflect", "edge", *(["wrap"] if d.version >= 19 else []))
    shape = d.shape(1, sizes=(3, 2, 4, 5) if mode != "constant" else (3, 2, 1, 4, 0))
    low, high = (0, 1) if mode in ("reflect", "wrap") else (-1, 3)
    axes = list(range(len(shape)))
    if d.version >= 18 and d.flag():
        axes = [a for a in axes if d.pick(True, False)] or [0]
    pads = [max(d.integer(low, high), -(shape[a] // 2)) for _ in range(2) for a in axes]
    x, attributes = d.tensor(shape), d.maybe(mode=mode) if mode == "constant" else {"mode": mode}
    if d.version < 11:
        value = d.maybe(value=1.5) if mode == "constant" else {}
        return Case([x], {"paddings" if d.version == 1 else "pads": pads, **attributes, **value})
    value_in = d.tensor(()) if mode == "constant" and d.pick(True, False) else None
    inputs: list[Any] = [x, ints(*pads), value_in]
    if len(axes) < len(shape) or (d.version >= 18 and d.flag()):
        inputs.append(np.array([a - len(shape) if d.flag() else a for a in axes], numpy_dtype(d.element("Tind"))))
    elif d.cell.parameter == "Tind":
        inputs.append(np.array(axes, numpy_dtype(d.element("Tind"))))
    return Case(inputs, attributes)


@strategy("DepthToSpace", "SpaceToDepth")
def depth_space(d: Draw) -> Case:
    block, n, c, h, w = d.pick(2, 1, 3), d.integer(1, 2), d.integer(1, 3), d.integer(1, 3), d.integer(1, 3)
    if d.op_type == "SpaceToDepth":
        return Case([d.tensor((n, c, h * block, w * block))], {"blocksize": block})
    mode = d.maybe(mode=d.pick("DCR", "CRD")) if d.version >= 11 else {}
    return Case([d.tensor((n, c * block * block, h, w))], {"blocksize": block, **mode})


@strategy("Trilu")
def trilu(d: Draw) -> Case:
    shape = d.shape(2)
    k = d.optional(lambda: np.array(d.integer(-5, 5), np.int64))
    return Case([d.tensor(shape), k], d.maybe(upper=d.pick(1, 0)))


@strategy("EyeLike")
def eye_like(d: Draw) -> Case:
    shape = (d.integer(0, 4), d.integer(1, 4))
    wanted = d.cell.parameter == "T2" or d.flag()
    attributes = {"dtype": ELEMENT_CODES[d.element("T2")]} if wanted else {}
    if not wanted:
        d.bind("T2", d.element("T1"))
        if d.type("T1") not in d.allowed("T2"):
            raise Unfit
    return Case([d.tensor(shape, d.element("T1"))], {**attributes, **d.maybe(k=d.integer(-4, 4))})


@strategy("ReverseSequence")
def reverse_sequence(d: Draw) -> Case:
    time, batch = d.pick(0, 1), None
    batch = 1 - time
    shape = (d.integer(1, 4), d.integer(1, 4), *d.shape(0, 2))
    lengths = np.array([d.integer(1, shape[time]) for _ in range(shape[batch])], np.int64)
    attributes = {} if time == 0 and d.flag() else {"time_axis": time, "batch_axis": batch}
    return Case([d.tensor(shape), lengths], attributes)


@strategy("CenterCropPad")
def center_crop_pad(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    axes = list(range(len(shape)))
    attributes: dict[str, Any] = {}
    if d.flag():
        axes = [a for a in axes if d.pick(True, False)] or [0]
        attributes = {"axes": [a - len(shape) if d.flag() else a for a in axes]}
    target = np.array([d.integer(1, 6) for _ in axes], numpy_dtype(d.element("Tind")))
    return Case([d.tensor(shape), target], attributes)


@strategy("Compress")
def compress(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    axis = (
        {"axis": d.axis(len(shape)) if d.version >= 11 else d.integer(0, len(shape) - 1)} if d.pick(True, False) else {}
    )
    length = shape[axis["axis"]] if axis else int(np.prod(shape))
    return Case([d.tensor(shape), d.tensor((d.integer(1, length),), "bool")], axis)


@strategy("OneHot")
def one_hot(d: Draw) -> Case:
    depth = d.integer(2, 5)
    shape = d.shape(0, 3)
    kind = d.element("T1")
    low = 0 if kind.startswith("u") or d.version < 11 else -depth
    indices = d.tensor(shape, kind, low, depth - 1)
    indices = np.round(indices.astype(np.float64)).astype(indices.dtype)
    count = np.array(depth if d.flag() else [depth]).astype(numpy_dtype(d.element("T2")))
    chosen = d.tensor((2,), d.element("T3"))
    axis = d.maybe(
        axis=d.integer(-len(shape) - 1, len(shape)) if d.version >= 11 else d.pick(-1, *range(len(shape) + 1))
    )
    return Case([indices, count, chosen], axis)


@strategy("Range")
def range_(d: Draw) -> Case:
    element = d.element()
    start, delta = d.integer(-4, 4), d.pick(2, 1, 3, -1, -2)
    numbers = (start, start + d.pick(7, 5, 0, 1, -3) * (1 if delta > 0 else -1), delta)
    return Case(
        [np.array(v).astype(numpy_dtype(element)) for v in numbers], d.maybe(stash_type=1) if d.version >= 27 else {}
    )


@strategy("ConstantOfShape")
def constant_of_shape(d: Draw) -> Case:
    shape = d.shape()
    if d.cell.parameter != "T2" and d.flag():
        d.bind("T2", "float")
        return Case([ints(*shape)])
    value = d.tensor((1,), d.element("T2"))
    if d.element("T2") == "string":
        raise Unfit
    return Case([ints(*shape)], {"value": value})


@strategy("Constant")
def constant(d: Draw) -> Case:
    element = d.element()
    options = ["value"]
    if d.version >= 12:
        options += {
            "float": ["value_float", "value_floats"],
            "int64": ["value_int", "value_ints"],
            "string": ["value_string", "value_strings"],
        }.get(element, [])
    name = d.pick(*options)
    vector = d.tensor((3,), element)
    values_: dict[str, Any] = {"value": d.tensor(d.shape(), element)}
    if name.endswith("s"):
        values_[name] = vector.tolist()
    elif name != "value":
        values_[name] = vector.tolist()[0]
    return Case([], {name: values_[name]})


@strategy("BitCast")
def bit_cast(d: Draw) -> Case:
    source, target = d.element("T1"), d.element("T2")
    if _bits(source) != _bits(target):
        options = d.allowed("T1")
        fixed = "T1" if d.cell.parameter != "T2" else "T2"
        same = [t[7:-1] for t in sorted(options) if _bits(t[7:-1]) == _bits(d.element(fixed))]
        other = d.pick(*same)
        d.types["T2" if fixed == "T1" else "T1"] = f"tensor({other})"
        source, target = d.element("T1"), d.element("T2")
    x = d.tensor(d.shape(), source)
    if target == "bool" and source != "bool":
        x = np.zeros(x.shape, x.dtype)
    return Case([x], {"to": ELEMENT_CODES[target]})


def _bits(element: str) -> int:
    return {"float4e2m1": 4, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float6e2m3": 6, "float6e3m2": 6}.get(
        element, 8 * numpy_dtype(element).itemsize
    )
