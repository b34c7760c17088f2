"""Dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op


@op("Dropout", 12, 22, host_inputs=(1, 2))
def dropout(
    xp: Any, data: Any, ratio: Any = None, training_mode: Any = None, *, seed: int | None = None, n_outputs: int = 1
) -> Any:
    """The data, and True everywhere; in training, a share ``ratio`` is zeroed and the rest scaled by 1 / (1 - ratio).

    The mask is drawn by NumPy's legacy generator, whose stream is frozen: a seed means the same everywhere.
    """
    share = 0.5 if ratio is None else float(ratio.item())
    if training_mode is None or not training_mode.item() or share == 0.0:
        y = xp.asarray(data, copy=True)
        return (y, xp.ones(data.shape, dtype=xp.bool)) if n_outputs > 1 else y
    y, mask = _drop(xp, data, share, seed)
    return (y, mask) if n_outputs > 1 else y


@op("Dropout", 10)
def dropout_10(xp: Any, data: Any, *, ratio: float = 0.5, n_outputs: int = 1) -> Any:
    """The data unchanged: there is no training mode. The mask is False, as onnxruntime has it in this version."""
    y = xp.asarray(data, copy=True)
    return (y, xp.zeros(data.shape, dtype=xp.bool)) if n_outputs > 1 else y


@op("Dropout", 7)
def dropout_7(xp: Any, data: Any, *, ratio: float = 0.5, n_outputs: int = 1) -> Any:
    """Dropout-10 with a mask in the type of the data."""
    y = xp.asarray(data, copy=True)
    return (y, xp.zeros_like(data)) if n_outputs > 1 else y


@op("Dropout", 1, 6)
def dropout_1(
    xp: Any,
    data: Any,
    *,
    is_test: int = 0,
    ratio: float = 0.5,
    consumed_inputs: Sequence[int] | None = None,
    n_outputs: int = 1,
) -> Any:
    """The data if ``is_test``, otherwise a random dropout; the mask has the type of the data."""
    if is_test:
        y, mask = xp.asarray(data, copy=True), xp.ones_like(data)
    else:
        y, mask = _drop(xp, data, ratio, None)
    return (y, xp.astype(mask, data.dtype)) if n_outputs > 1 else y


def _drop(xp: Any, data: Any, ratio: float, seed: int | None) -> tuple[Any, Any]:
    kept = np.random.RandomState(seed).uniform(size=data.shape) >= ratio
    mask = xp.asarray(kept)
    scaled = xp.astype(data, xp.float64) * (1.0 / (1.0 - ratio))
    return xp.astype(xp.where(mask, scaled, 0.0), data.dtype), mask
