"""What operators did before opset 7 (limited broadcasting) and opset 13 (softmax over a matrix)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_kernels.refusals import require_axis


def limited_broadcast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The opset-1 form of a binary kernel: the second input is aligned to the first one's axes from ``axis`` on."""

    def aligned(
        xp: Any,
        a: Any,
        b: Any,
        *,
        axis: int | None = None,
        broadcast: int = 0,
        consumed_inputs: Sequence[int] | None = None,
    ) -> Any:
        if broadcast and axis is not None and b.shape:
            b = xp.reshape(b, b.shape + (1,) * (a.ndim - require_axis(axis, a.ndim) - b.ndim))
        return function(xp, a, b)

    aligned.__doc__ = f"{function.__doc__} With broadcast=1, the second input's shape is a run of the first one's."
    return aligned


def over_matrix(function: Callable[..., Any]) -> Callable[..., Any]:
    """The form before opset 13 of a kernel over one axis: the axes from ``axis`` on are taken together."""

    def flattened(xp: Any, x: Any, *, axis: int = 1) -> Any:
        axis = require_axis(axis, max(x.ndim, 1))
        rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
        return xp.reshape(function(xp, xp.reshape(x, (rows, columns)), axis=1), x.shape)

    flattened.__doc__ = f"{function.__doc__} All axes from the given one on count as one."
    return flattened
