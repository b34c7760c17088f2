"""Gathering and scattering by index."""

from __future__ import annotations

import numpy as np

from onnxplug.contract.types import numpy_dtype
from operators.case import Case, Draw, strategy
from operators.values import is_float


def axis_of(d: Draw, rank: int) -> int:
    """An axis; negative only where the version knows that."""
    return d.axis(rank) if d.version >= 11 else d.integer(0, rank - 1)


def indices(d: Draw, shape: tuple[int, ...], size: int, element: str) -> np.ndarray:
    """Indices into ``size`` elements, negative ones only from version 11 on."""
    return d.rng.integers(-size if d.version >= 11 and d.flag() else 0, size, shape).astype(numpy_dtype(element))


@strategy("Gather")
def gather(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    axis = axis_of(d, len(shape))
    attributes = {"axis": axis} if axis % len(shape) or d.flag() else {}
    return Case([d.tensor(shape), indices(d, d.shape(0, 2), shape[axis], d.element("Tind"))], attributes)


@strategy("GatherElements")
def gather_elements(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    axis = axis_of(d, len(shape))
    picked = tuple(d.integer(0, 4) if i == axis % len(shape) else size for i, size in enumerate(shape))
    attributes = {"axis": axis} if axis % len(shape) or d.flag() else {}
    return Case([d.tensor(shape), indices(d, picked, shape[axis], d.element("Tind"))], attributes)


def nd_indices(d: Draw, shape: tuple[int, ...], outer: tuple[int, ...]) -> np.ndarray:
    """Tuples of indices into the leading axes of ``shape``."""
    depth = d.integer(1, len(shape))
    columns = [d.rng.integers(-size if d.flag() else 0, size, outer) for size in shape[:depth]]
    return np.stack(columns, -1).astype(np.int64)


@strategy("GatherND")
def gather_nd(d: Draw) -> Case:
    batch = d.pick(0, 1, 2) if d.version >= 12 else 0
    outer = tuple(d.integer(1, 3) for _ in range(batch))
    inner = d.shape(1, 3, sizes=(3, 2, 1, 4, 5))
    found = nd_indices(d, inner, (*outer, *d.shape(0, 2, sizes=(3, 2, 1))))
    if found.ndim <= batch:
        found = found[..., None]
    return Case(
        [d.tensor((*outer, *inner)), found],
        d.maybe(batch_dims=batch) if batch == 0 and d.version >= 12 else {"batch_dims": batch} if batch else {},
    )


@strategy("Scatter", "ScatterElements")
def scatter_elements(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    axis = axis_of(d, len(shape))
    at = axis % len(shape)
    reductions = {16: ("none", "add", "mul"), 18: ("none", "add", "mul", "max", "min")}.get(d.version, ("none",))
    element = d.element()
    numeric = element not in ("bool", "string")
    reduction = d.pick(*reductions) if numeric and not element.startswith("complex") else "none"
    count = d.integer(0, shape[at])
    picked = tuple(count if i == at else d.integer(1, size) for i, size in enumerate(shape))
    if reduction == "none":  # indices must not repeat
        columns = np.argsort(d.rng.random(tuple(shape[at] if i == at else s for i, s in enumerate(picked))), axis=at)
        index = np.take(columns, range(count), axis=at)
    else:
        index = d.rng.integers(0, shape[at], picked)
    if d.version >= 11 and d.flag():
        index = index - shape[at]
    attributes = {"axis": axis} if at or d.flag() else {}
    if reduction != "none":
        attributes["reduction"] = reduction
    low, high = (-2, 2) if is_float(element) else (None, None)
    return Case(
        [
            d.tensor(shape, element, low, high),
            index.astype(numpy_dtype(d.element("Tind"))),
            d.tensor(picked, element, low, high),
        ],
        attributes,
    )


@strategy("ScatterND")
def scatter_nd(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    element = d.element()
    reductions = {16: ("none", "add", "mul"), 18: ("none", "add", "mul", "max", "min")}.get(d.version, ("none",))
    numeric = element not in ("bool", "string")
    reduction = d.pick(*reductions) if numeric and not element.startswith("complex") else "none"
    depth = d.integer(1, len(shape))
    total = int(np.prod(shape[:depth]))
    count = d.integer(1, total)
    flat = d.rng.permutation(total)[:count] if reduction == "none" else d.rng.integers(0, total, count)
    index = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
    low, high = (-2, 2) if is_float(element) else (None, None)
    updates = d.tensor((count, *shape[depth:]), element, low, high)
    return Case(
        [d.tensor(shape, element, low, high), index, updates], {"reduction": reduction} if reduction != "none" else {}
    )


@strategy("TensorScatter")
def tensor_scatter(d: Draw) -> Case:
    shape = d.shape(2, 4, sizes=(3, 2, 1, 4))
    axis = d.pick(*range(1, len(shape))) - d.pick(0, len(shape))
    at = axis % len(shape)
    length = d.integer(1, shape[at])
    mode = d.pick("linear", "circular")
    highest = shape[at] - length if mode == "linear" else shape[at] - 1
    starts = d.optional(lambda: d.rng.integers(0, highest + 1, shape[0]).astype(np.int64))
    attributes = {"mode": mode} if mode != "linear" or d.flag() else {}
    if axis != -2 or d.flag():
        attributes["axis"] = axis
    update = d.tensor((*shape[:at], length, *shape[at + 1 :]))
    return Case([d.tensor(shape), update, starts], attributes)
