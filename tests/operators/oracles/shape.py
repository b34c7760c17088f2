"""Shapes and moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import numpy_dtype
from operators.case import Case
from operators.oracle import always, oracle
from operators.values import element_name


@oracle(
    "Shape",
    sentence="If the start or end are out of bounds, they are clamped to the range [0, r]; onnx.reference wraps around once more",
    wrong=lambda case: min(case.attributes.get("start", 0), case.attributes.get("end", 0)) < -case.inputs[0].ndim,
)
def shape(case: Case, x: list[Any]) -> Any:
    rank = x[0].ndim

    def bound(name: str, default: int) -> int:
        value = case.attributes.get(name, default)
        return int(np.clip(value + rank if value < 0 else value, 0, rank))

    return np.array(x[0].shape[bound("start", 0) : bound("end", rank)], np.int64)


@oracle("Size", sentence="outputs a int64 scalar that equals to the total number of elements of the input tensor")
def size(case: Case, x: list[Any]) -> Any:
    return np.array(x[0].size, np.int64)


@oracle(
    "Constant",
    sentence="This operator produces a constant tensor. Exactly one of the provided attributes must be specified",
)
def constant(case: Case, x: list[Any]) -> Any:
    ((_, value),) = case.attributes.items()
    return np.asarray(value, numpy_dtype(element_name(case.types["T"])))


@oracle(
    "ConstantOfShape",
    sentence="Generate a tensor with given value and shape; defaults to a tensor of value 0 and datatype float32",
)
def constant_of_shape(case: Case, x: list[Any]) -> Any:
    return np.full(tuple(x[0]), case.attributes.get("value", np.zeros(1, np.float32))[0])


@oracle("Identity", sentence="Identity operator")
def identity(case: Case, x: list[Any]) -> Any:
    return case.inputs[0]


@oracle("Reshape", sentence="It takes as input a tensor and an argument shape (Reshape-1)")
def reshape(case: Case, x: list[Any]) -> Any:
    given = case.attributes["shape"]
    return case.inputs[0].reshape([case.inputs[0].shape[i] if size == 0 else size for i, size in enumerate(given)])


@oracle("Flatten", sentence="a tensor with shape (d_0 X d_1 ... d_(axis-1), d_axis X ... X d_n)")
def flatten(case: Case, x: list[Any]) -> Any:
    axis, dims = case.attributes.get("axis", 1), x[0].shape
    axis = axis + len(dims) if axis < 0 else axis
    return case.inputs[0].reshape(int(np.prod(dims[:axis])), int(np.prod(dims[axis:])))


@oracle("Concat", sentence="Which axis to concat on. Default value is 1 (Concat-1)")
def concat(case: Case, x: list[Any]) -> Any:
    return np.concatenate(case.inputs, case.attributes.get("axis", 1))


@oracle("Tile", sentence="Repeat the elements of a tensor along an axis (Tile-1)")
def tile(case: Case, x: list[Any]) -> Any:
    if case.version > 1:
        return np.tile(case.inputs[0], x[1])
    return np.concatenate([case.inputs[0]] * int(x[1]), int(x[2])) if int(x[1]) else case.inputs[0]


@oracle(
    "Split",
    sentence="Split a tensor into a list of tensors, along the specified axis; the argument split gives the lengths (Split-1)",
)
def split(case: Case, x: list[Any]) -> Any:
    axis = case.attributes.get("axis", 0)
    lengths = case.attributes.get("split") or [x[0].shape[axis] // case.outputs] * case.outputs  # type: ignore[operator]
    return tuple(np.split(case.inputs[0], np.cumsum(lengths)[:-1], axis))


def _slice_arguments(case: Case) -> tuple[Any, Any, Any, Any]:
    data = case.inputs[0]
    if case.version < 10:
        starts, ends = case.attributes["starts"], case.attributes["ends"]
        return starts, ends, case.attributes.get("axes", range(len(starts))), [1] * len(starts)
    _, starts, ends, axes, steps = [*case.inputs, None, None][:5]
    axes = range(len(starts)) if axes is None else [int(a) % data.ndim for a in axes]
    return starts, ends, axes, [1] * len(starts) if steps is None else steps


@oracle(
    "Slice",
    sentence="starts[i] is clamped into the range [0, dims[axes[i]]] for positive stepping and [0, dims[axes[i]]-1] for negative stepping",
    wrong=lambda case: case.version >= 10,
)
def slice_(case: Case, x: list[Any]) -> Any:
    data = case.inputs[0]
    for start, end, axis, step in zip(*_slice_arguments(case), strict=True):
        dim, start, end, step = data.shape[axis], int(start), int(end), int(step)
        start, end = (v + dim if v < 0 else v for v in (start, end))
        start = min(max(start, 0), dim if step > 0 else dim - 1)
        end = min(max(end, 0 if step > 0 else -1), dim if step > 0 else dim - 1)
        data = np.take(data, range(start, end, step) if dim else (), axis)
    return data


@oracle(
    "Pad",
    sentence="negative pads remove elements; modes constant, reflect, edge and wrap pad what is left; constant_value is by default 0,"
    " empty string or False",
    wrong=lambda case: case.types["T"] == "tensor(string)",
)
def pad(case: Case, x: list[Any]) -> Any:
    data, attributes = case.inputs[0], case.attributes
    pads = attributes.get("pads", attributes.get("paddings")) if case.version < 11 else list(map(int, case.inputs[1]))
    extra = [*case.inputs, None, None, None]
    axes = range(data.ndim) if extra[3] is None or case.version < 18 else [int(a) % data.ndim for a in extra[3]]
    both = [(0, 0)] * data.ndim
    for position, axis in enumerate(axes):
        both[axis] = (pads[position], pads[position + len(pads) // 2])
    data = data[tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(both, data.shape, strict=True))]
    grown = [(max(a, 0), max(b, 0)) for a, b in both]
    mode = attributes.get("mode", "constant")
    if mode != "constant":
        return np.pad(data, grown, mode)
    value = attributes.get("value", 0.0) if case.version < 11 else extra[2]
    blank = "" if data.dtype == object else np.zeros((), data.dtype)
    out = np.full(
        [size + a + b for (a, b), size in zip(grown, data.shape, strict=True)],
        blank if value is None else value,
        data.dtype,
    )
    out[tuple(slice(a, a + size) for (a, _), size in zip(grown, data.shape, strict=True))] = data
    return out


@oracle(
    "Trilu",
    sentence="all other elements in the matrix are set to zero; of strings, to the empty string",
    wrong=lambda case: case.types["T"] == "tensor(string)",
)
def trilu(case: Case, x: list[Any]) -> Any:
    k = 0 if len(case.inputs) < 2 or case.inputs[1] is None else int(case.inputs[1])
    kept = np.ones(x[0].shape[-2:], bool)
    kept = np.triu(kept, k) if case.attributes.get("upper", 1) else np.tril(kept, k)
    return np.where(kept, case.inputs[0], "")


@oracle(
    "CenterCropPad",
    sentence="pad values are zeros; of strings, the empty string",
    wrong=lambda case: case.types["T"] == "tensor(string)",
)
def center_crop_pad(case: Case, x: list[Any]) -> Any:
    data = case.inputs[0]
    for axis, target in zip(case.attributes.get("axes", range(data.ndim)), case.inputs[1], strict=True):
        axis, target, size = axis % data.ndim, int(target), data.shape[axis]
        before = abs(size - target) // 2
        if target < size:
            data = np.take(data, range(before, before + target), axis)
        else:
            blank = [
                np.full((*data.shape[:axis], n, *data.shape[axis + 1 :]), "", object)
                for n in (before, target - size - before)
            ]
            data = np.concatenate([blank[0], data, blank[1]], axis)
    return data


@oracle(
    "Unique",
    sentence="sorted: whether to sort the unique elements in ascending order before returning as output, else in order of first occurrence",
    wrong=always,
)
def unique(case: Case, x: list[Any]) -> Any:
    data, axis = case.inputs[0], case.attributes.get("axis")
    whole = data.reshape(-1) if axis is None else np.moveaxis(data, axis, 0)
    items = [item.tolist() if isinstance(item, np.ndarray) else [item] for item in whole.reshape(len(whole), -1)]
    first: dict[Any, int] = {}
    for position, item in enumerate(items):
        first.setdefault(tuple(item), position)
    keys = list(first)
    if case.attributes.get("sorted", 1):
        keys.sort(key=lambda key: tuple((v.real, v.imag) if isinstance(v, complex) else v for v in key))
    indices = np.array([first[key] for key in keys], np.int64)
    order = {key: number for number, key in enumerate(keys)}
    inverse = np.array([order[tuple(item)] for item in items], np.int64)
    y = np.take(data.reshape(-1) if axis is None else data, indices, 0 if axis is None else axis)
    return y, indices, inverse, np.bincount(inverse, minlength=len(keys)).astype(np.int64)


@oracle(
    "Scatter",
    sentence="updating its values to values specified by updates at specific index positions specified by indices, along axis (Scatter-9)",
)
def scatter(case: Case, x: list[Any]) -> Any:
    data, indices, updates = case.inputs
    out, axis = data.copy(), case.attributes.get("axis", 0) % data.ndim
    for at in np.ndindex(indices.shape):
        out[(*at[:axis], int(indices[at]), *at[axis + 1 :])] = updates[at]
    return out


@oracle(
    "GatherElements",
    sentence="out[i][j] = input[index[i][j]][j] if axis = 0; onnx.reference wants equal sizes along other axes",
)
def gather_elements(case: Case, x: list[Any]) -> Any:
    data, indices = case.inputs
    axis = case.attributes.get("axis", 0) % data.ndim
    out = np.empty(indices.shape, data.dtype)
    for at in np.ndindex(indices.shape):
        out[at] = data[(*at[:axis], int(indices[at]), *at[axis + 1 :])]
    return out


@oracle(
    "Squeeze",
    sentence="negative value means counting dimensions from the back; accepted range is [-r, r-1] where r = rank(data)",
    wrong=lambda case: case.version < 13 and min(case.attributes.get("axes", [0])) < 0,  # taken off one after the other
)
def squeeze(case: Case, x: list[Any]) -> Any:
    return np.squeeze(case.inputs[0], tuple(case.attributes["axes"]))


@oracle(
    "Unsqueeze",
    sentence="each axis is in [-r, r-1] with r the rank of the output; the order of values in axes does not matter",
    wrong=lambda case: case.version < 13 and min(case.attributes["axes"]) < 0,
)
def unsqueeze(case: Case, x: list[Any]) -> Any:
    axes = case.attributes["axes"] if case.version < 13 else [int(a) for a in case.inputs[1]]
    return np.expand_dims(case.inputs[0], tuple(axes))


@oracle(
    "OneHot",
    sentence="depth: scalar or rank 1 tensor containing exactly one element; indices out of [-depth, depth-1] give all off values",
    wrong=always,
)
def one_hot(case: Case, x: list[Any]) -> Any:
    depth, (off, on) = int(np.ravel(x[1])[0]), case.inputs[2]
    indices = x[0].astype(np.int64)
    hot = np.where(indices < 0, indices + depth, indices)[..., None] == np.arange(depth)
    return np.moveaxis(np.where(hot, on, off), -1, case.attributes.get("axis", -1))
