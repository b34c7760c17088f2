"""Sequences, which are Python lists, and optionals, which are their element or ``None``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.join import concat, parts
from onnxplug_kernels.refusals import FAIL, Refusal, require_axis

_INT64 = np.dtype(np.int64)


@op("SequenceConstruct", 11, portable=False)
def sequence_construct(xp: Any, *inputs: Any) -> list[Any]:
    """The inputs as a sequence."""
    return list(inputs)


@op("SequenceEmpty", 11, portable=False)
def sequence_empty(xp: Any, *, dtype: int | None = None) -> list[Any]:
    """A sequence of nothing; ``dtype`` is only its declared element type."""
    return []


@op("SequenceAt", 11, host_inputs=(1,), portable=False)
def sequence_at(xp: Any, sequence: list[Any], position: np.ndarray) -> Any:
    """The element at ``position``, counted from the end when negative."""
    return sequence[_place(position, len(sequence), len(sequence) - 1)]


@op("SequenceInsert", 11, host_inputs=(2,), portable=False)
def sequence_insert(xp: Any, sequence: list[Any], tensor: Any, position: np.ndarray | None = None) -> list[Any]:
    """The sequence with ``tensor`` before ``position``, by default at the end."""
    if position is None:
        return [*sequence, tensor]
    place = _place(position, len(sequence), len(sequence))
    return [*sequence[:place], tensor, *sequence[place:]]


@op("SequenceErase", 11, host_inputs=(1,), portable=False)
def sequence_erase(xp: Any, sequence: list[Any], position: np.ndarray | None = None) -> list[Any]:
    """The sequence without the element at ``position``, by default the last."""
    place = len(sequence) - 1 if position is None else _place(position, len(sequence), len(sequence) - 1)
    left = sequence.copy()
    del left[place : place + 1]
    return left


def _place(position: np.ndarray, length: int, last: int) -> int:
    place: int = position.item()
    if not -length <= place <= last:
        raise Refusal(f"Invalid sequence index ({place}) specified for sequence of size ({length})")
    return place + length if place < 0 else place


@op("SequenceLength", 11, portable=False)
def sequence_length(xp: Any, sequence: list[Any]) -> Any:
    """The number of elements, an int64 scalar."""
    return np.array(len(sequence), _INT64)


@op("ConcatFromSequence", 11, portable=False)
def concat_from_sequence(xp: Any, sequence: list[Any], *, axis: int, new_axis: int = 0) -> Any:
    """The elements joined along ``axis``, which is a new one if ``new_axis``."""
    return xp.stack(sequence, axis=axis) if new_axis else concat(xp, *sequence, axis=axis)


@op("SplitToSequence", 11, 24, host_inputs=(1,), portable=False)
def split_to_sequence(
    xp: Any, x: Any, split: np.ndarray | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Any]:
    """``x`` cut along ``axis`` into parts of ``split``: one size for all (the last may be shorter), or one for each.

    Without ``split``, or a size in it, the parts are single slices, which lose the axis unless ``keepdims``.
    """
    axis = require_axis(axis, x.ndim)
    total = x.shape[axis]
    if split is None or not split.size:
        slices = parts(x, [1] * total, axis)
        return slices if keepdims else [xp.squeeze(s, axis=axis) for s in slices]
    if split.ndim == 0:
        size = int(split.item())
        if size < 1:
            raise Refusal(f"SplitToSequence: split is {size}, it must be positive", FAIL)
        return parts(x, [min(size, total - start) for start in range(0, total, size)], axis)
    return parts(x, split.tolist(), axis)


@op("Optional", 15, 28, portable=False)
def optional(xp: Any, x: Any = None, *, type: Any = None) -> Any:
    """An optional holding ``x``, or an empty one of the declared ``type``."""
    return x


@op("OptionalHasElement", 15, 28, portable=False)
def optional_has_element(xp: Any, x: Any = None) -> Any:
    """Whether there is an element, a bool scalar."""
    return np.array(x is not None)


@op("OptionalGetElement", 15, 28, portable=False)
def optional_get_element(xp: Any, x: Any) -> Any:
    """The element of an optional; a tensor or sequence is its own."""
    if x is None:
        raise ValueError("OptionalGetElement: the optional is empty")
    return x
