"""What kernels raise for inputs that their operator does not take, in onnxruntime's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

FAIL, INVALID_ARGUMENT = "FAIL", "INVALID_ARGUMENT"
_OF_NUMPY = (np.ndarray, np.generic)


class Refusal(ValueError, IndexError):
    """``status`` names onnxruntime's class of the error, ``FAIL`` or ``INVALID_ARGUMENT``; None: the class that the operator's
    refusals have as a rule."""

    def __init__(self, text: str, status: str | None = None) -> None:
        super().__init__(text)
        self.status = status


def braced(shape: Any) -> str:
    """A shape as onnxruntime prints it."""
    return f"{{{','.join(map(str, shape))}}}"


def spreads(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether an operand of this shape broadcasts to the whole one."""
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in pairs)


def outside(indices: np.ndarray, size: int) -> Any:
    """The first of the indices that an axis of ``size`` does not have, counted from the front or the end."""
    return indices[(indices < -size) | (indices >= size)].item(0)


def out_of_bounds(indices: np.ndarray, size: int) -> Refusal:
    """What Gather says of indices of which an axis of ``size`` does not have all."""
    return Refusal(
        f"indices element out of data bounds, idx={outside(indices, size)} must be within the inclusive range [{-size},{size - 1}]"
    )


def require_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front; Refusal for one that a tensor of ``rank`` dimensions does not have."""
    if not -rank <= axis < rank:
        raise Refusal(f"axis {axis} is not in valid range [-{rank},{rank - 1}]", FAIL)
    return axis % rank


def require_total(given: np.ndarray, rows: int | None, held: int) -> int:
    """GroupQueryAttention's total length, of ``rows`` new ones (None: not all of them count) behind a cache with room for ``held``."""
    if given.size != 1:
        raise Refusal("total_sequence_length tensor must be of one element.", INVALID_ARGUMENT)
    total = int(given.item(0))
    if total < 1:
        raise Refusal(f"total_sequence_length must be positive, got {total}.", INVALID_ARGUMENT)
    if rows is not None and total < rows:
        told = (
            f"total_sequence_length must be at least kv_sequence_length for a non-sliding cache. Got {total} and {rows}"
        )
        raise Refusal(told, INVALID_ARGUMENT)
    if rows is not None and held < total != held + rows:
        raise Refusal(
            "total_sequence_length must equal past_sequence_length + kv_sequence_length for a dynamic cache, or be no greater than "
            f"past_sequence_length for a static cache. Got total_sequence_length={total}, past_sequence_length={held}, "
            f"kv_sequence_length={rows}.",
            INVALID_ARGUMENT,
        )
    return total


def require_range(xp: Any, indices: Any, size: int, text: str) -> None:
    """Refusal for indices below 0 or from ``size`` on, of which ``text`` names the first as {value} and its place as {at}. Those of a
    device are watched."""
    if not isinstance(indices, np.ndarray):
        watched(xp, indices, 0, size, INVALID_ARGUMENT)
        return
    if not indices.size or 0 <= indices.min() <= indices.max() < size:
        return
    flat = indices.reshape(-1)
    at = int(np.argmax((flat < 0) | (flat >= size)))
    raise Refusal(text.format(value=flat[at], at=at), INVALID_ARGUMENT)


def watched(xp: Any, indices: Any, low: int, high: int, status: str | None = None) -> bool:
    """Whether a device tells, when a run ends, of indices that are not in ``low`` to ``high`` - 1: those that it holds, if their namespace
    has a function ``watch`` for that. Looking at them would mean waiting; what NumPy reads by raises by itself."""
    watch = None if isinstance(indices, _OF_NUMPY) else getattr(xp, "watch", None)
    return watch is not None and bool(watch(indices, low, high, status))
