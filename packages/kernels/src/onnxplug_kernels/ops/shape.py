"""Constants, and operators that read or change a shape, not elements: most return views where NumPy does."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import ElementType, dtype_in, element_type
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, braced, require_axis


@op("Constant", 1, 25)
def constant(
    xp: Any,
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Any:
    """The one attribute that is given, as an array (ONNX operator spec, Constant-25)."""
    if value is not None:
        return xp.asarray(value)
    if sparse_value is not None:
        return xp.asarray(_dense(sparse_value))
    for number, dtype in (
        (value_float, xp.float32),
        (value_floats, xp.float32),
        (value_int, xp.int64),
        (value_ints, xp.int64),
    ):
        if number is not None:
            return xp.asarray(number, dtype=dtype)
    text = value_string if value_string is not None else value_strings
    if text is None:
        raise ValueError("Constant has no value: exactly one of value, sparse_value and value_* must be given")
    return np.array(text, dtype=object)


def _dense(sparse: Any) -> np.ndarray:
    """A sparse tensor (arrays ``values`` and ``indices``, ``dims``) with its zeros written out; a dense one as is."""
    if isinstance(sparse, np.ndarray):
        return sparse
    values, indices, dims = np.asarray(sparse.values), np.asarray(sparse.indices), tuple(sparse.dims)
    fill: Any = "" if values.dtype.kind in "OU" else 0
    dense = np.full(math.prod(dims), fill, dtype=values.dtype)
    # Indices are either positions in the flattened tensor or one row of coordinates for each value.
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)
    dense[flat] = values
    return dense.reshape(dims)


@op("ConstantOfShape", 9, 25, host_inputs=(0,))
def constant_of_shape(xp: Any, shape: np.ndarray, *, value: np.ndarray | None = None) -> Any:
    """An array of ``shape`` filled with the one element of ``value`` (default: float32 zero)."""
    if value is None:
        return xp.zeros(tuple(shape.tolist()), dtype=xp.float32)
    return xp.full(tuple(shape.tolist()), value.item(), dtype=dtype_in(xp, element_type(value.dtype)))


@op("Shape", 1, 25)
def shape(xp: Any, x: Any, *, start: int = 0, end: int | None = None) -> Any:
    """The dimensions ``start:end`` of ``x``, as int64."""
    return xp.asarray(list(x.shape)[start:end], dtype=xp.int64)


@op("Size", 1, 25)
def size(xp: Any, x: Any) -> Any:
    """The number of elements of ``x``, an int64 scalar."""
    return xp.asarray(math.prod(x.shape), dtype=xp.int64)


@op("Reshape", 1)
def reshape_by_attribute(
    xp: Any, x: Any, *, shape: list[int] | None = None, consumed_inputs: list[int] | None = None
) -> Any:
    """``x`` in the shape of the attribute, 0 standing for the input's dimension and -1 for what is left."""
    return xp.reshape(x, target_shape(x.shape, shape or [], allowzero=False))


@op("Reshape", 5, 25, host_inputs=(1,))
def reshape(xp: Any, x: Any, shape: np.ndarray, *, allowzero: int = 0) -> Any:
    """``x`` in ``shape``; 0 stands for the input's dimension unless ``allowzero``, -1 for what is left."""
    if shape.ndim != 1:
        raise Refusal(f"A shape tensor must be a vector tensor, got {shape.ndim} dimensions")
    return xp.reshape(x, target_shape(x.shape, shape.tolist(), allowzero=bool(allowzero)))


def _unreshaped(shape: tuple[int, ...], wanted: list[int]) -> Refusal:
    return Refusal(
        "The input tensor cannot be reshaped to the requested shape. "
        f"Input shape:{braced(shape)}, requested shape:{braced(wanted)}"
    )


def target_shape(shape: tuple[int, ...], wanted: list[int], *, allowzero: bool) -> tuple[int, ...]:
    """The shape that Reshape's ``wanted`` means for an input of ``shape``."""
    copied = {i for i, d in enumerate(wanted) if d == 0} if not allowzero and 0 in wanted else ()
    if copied and max(copied) >= len(shape):
        raise Refusal("The dimension with value zero exceeds the dimension size of the input tensor.")
    if min(wanted, default=0) < -1:
        raise Refusal(f"A dimension cannot be less than -1, got {next(d for d in wanted if d < -1)}")
    if wanted.count(-1) > 1:
        raise Refusal("At most one dimension can be -1.")
    sizes = [shape[i] if i in copied else d for i, d in enumerate(wanted)] if copied else wanted.copy()
    total = math.prod(shape)
    if -1 in sizes:
        # Copied dimensions stand on both sides: leaving them out keeps -1 well defined when one of them is 0.
        have = math.prod([d for i, d in enumerate(shape) if i not in copied]) if copied else total
        taken = -math.prod([d for i, d in enumerate(wanted) if i not in copied] if copied else wanted)
        if not taken or have % taken:
            raise _unreshaped(shape, wanted)
        sizes[sizes.index(-1)] = have // taken
    if math.prod(sizes) != total:
        raise _unreshaped(shape, wanted)
    return tuple(sizes)


@op("Flatten", 1, 25)
def flatten(xp: Any, x: Any, *, axis: int = 1) -> Any:
    """``x`` as a matrix: the dimensions before ``axis`` are its rows, the others its columns."""
    if not -x.ndim <= axis <= x.ndim:
        raise ValueError(f"axis {axis} is outside of a tensor of {x.ndim} dimensions")
    split = axis + x.ndim if axis < 0 else axis
    return xp.reshape(x, (math.prod(x.shape[:split]), math.prod(x.shape[split:])))


@op("Squeeze", 1, 11)
def squeeze_by_attribute(xp: Any, x: Any, *, axes: list[int] | None = None) -> Any:
    """``x`` without the dimensions ``axes``, by default all those of size 1."""
    return _squeeze(xp, x, axes)


@op("Squeeze", 13, 25, host_inputs=(1,))
def squeeze(xp: Any, x: Any, axes: np.ndarray | None = None) -> Any:
    """``x`` without the dimensions ``axes``, by default all those of size 1."""
    return _squeeze(xp, x, None if axes is None else axes.reshape(-1).tolist())


def _squeeze(xp: Any, x: Any, axes: list[int] | None) -> Any:
    if axes is None:
        axes = [i for i, d in enumerate(x.shape) if d == 1]
    for axis in axes:
        odd = require_axis(axis, x.ndim)
        if x.shape[odd] != 1:
            raise Refusal(
                f"Dimension of input {odd} must be 1 instead of {x.shape[odd]}. shape={braced(x.shape)}", FAIL
            )
    return xp.squeeze(x, axis=tuple({axis % x.ndim: None for axis in axes}))


@op("Unsqueeze", 1, 11)
def unsqueeze_by_attribute(xp: Any, x: Any, *, axes: list[int]) -> Any:
    """``x`` with dimensions of size 1 at the places ``axes`` of the result."""
    return _unsqueeze(xp, x, axes)


@op("Unsqueeze", 13, 25, host_inputs=(1,))
def unsqueeze(xp: Any, x: Any, axes: np.ndarray) -> Any:
    """``x`` with dimensions of size 1 at the places ``axes`` of the result."""
    return _unsqueeze(xp, x, axes.reshape(-1).tolist())


def _unsqueeze(xp: Any, x: Any, axes: list[int]) -> Any:
    rank = x.ndim + len(axes)
    places = {require_axis(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise Refusal("'axes' has a duplicate axis", INVALID_ARGUMENT)
    old = iter(x.shape)
    return xp.reshape(x, tuple(1 if i in places else next(old) for i in range(rank)))


@op("Transpose", 1, 25)
def transpose(xp: Any, x: Any, *, perm: list[int] | None = None) -> Any:
    """``x`` with its dimensions in the order ``perm``, by default reversed."""
    order = range(x.ndim)[::-1] if perm is None else perm
    if sorted(order) != list(range(x.ndim)):
        raise Refusal(f"perm {list(order)} is no order of {x.ndim} dimensions", INVALID_ARGUMENT)
    return xp.permute_dims(x, tuple(order))


@op("Expand", 8, 13, host_inputs=(1,))
def expand(xp: Any, x: Any, shape: np.ndarray) -> Any:
    """``x`` and ``shape`` broadcast against each other; the result's rank is the greater of the two."""
    target = np.broadcast_shapes(tuple(x.shape), tuple(shape.tolist()))
    # A broadcast view repeats memory, which a consumer that writes in place would see.
    return xp.asarray(xp.broadcast_to(x, target), copy=True)


@op("Tile", 1, host_inputs=(1, 2))
def tile_along_axis(xp: Any, x: Any, tiles: np.ndarray, axis: np.ndarray) -> Any:
    """``tiles`` copies of ``x`` along ``axis``."""
    repeats = [1] * x.ndim
    repeats[int(axis.item())] = int(tiles.item())
    return xp.tile(x, tuple(repeats))


@op("Tile", 6, 13, host_inputs=(1,))
def tile(xp: Any, x: Any, repeats: np.ndarray) -> Any:
    """``x`` repeated ``repeats[i]`` times along dimension ``i``."""
    if repeats.size != x.ndim:
        raise Refusal("'repeat' input tensor must have the same length as the 'input' tensor")
    if (lowest := int(repeats.min(initial=0))) < 0:
        raise Refusal(f"Tile repeat value must be non-negative, got: {lowest}")
    return xp.tile(x, tuple(repeats.tolist()))


@op("Identity", 1, 25)
def identity(xp: Any, x: Any) -> Any:
    """The input itself: tensor, sequence or optional."""
    return x


@op("EyeLike", 9, 22)
def eye_like(xp: Any, x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    """Ones on diagonal ``k`` of a matrix of ``x``'s shape, zeros elsewhere."""
    if x.ndim != 2:
        raise ValueError(f"EyeLike takes a matrix, got shape {tuple(x.shape)}")
    return xp.eye(*x.shape, k=k, dtype=x.dtype if dtype is None else dtype_in(xp, dtype))


@functools.cache
def _named(xp: Any, dtype: np.dtype) -> Any:
    """The array library's dtype of the same name, which NumPy makes anew each time."""
    return getattr(xp, dtype.name)


@op("Range", 11, 27, host_inputs=(0, 1, 2))
def range_(
    xp: Any, start: np.ndarray, limit: np.ndarray, delta: np.ndarray, *, stash_type: int = ElementType.FLOAT
) -> Any:
    """``start + i * delta`` for each i that stays short of ``limit``; half floats are computed in ``stash_type``."""
    dtype, step = start.dtype, delta.item()
    if step == 0:
        raise Refusal("delta in Range operator can not be zero!")
    if dtype.kind == "i":
        return xp.arange(start.item(), limit.item(), step, dtype=_named(xp, dtype))
    work = dtype if dtype.kind == "f" and dtype.itemsize >= 4 else dtype_in(np, stash_type)
    begin, end, stride = (v.reshape(()).astype(work) for v in (start, limit, delta))
    count = max(math.ceil(float(end - begin) / float(stride)), 0)
    values = begin + np.arange(count).astype(work) * stride
    return xp.asarray(values.astype(dtype))
