"""Reading by index: ``np.take`` with an output. Its checking mode buffers the output, so indices are checked apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract import Into
from onnxplug_ep_cpu.kernels.forms import Specs, into, normal_axis
from onnxplug_kernels.refusals import out_of_bounds


@into("Gather", 1, 13)
def gather(inputs: Specs, outputs: Specs, *, axis: int = 0) -> Into | None:
    """The slices of ``data`` along ``axis`` that ``indices`` name; negative ones count from the end."""
    data, indices = inputs
    axis = normal_axis(axis, len(data.shape))
    size = data.shape[axis]
    if indices.constant is None:
        return Into(_checked(axis, size))
    if not -size <= indices.constant.min() <= indices.constant.max() < size:
        return None  # the returning form reports it
    known = np.where(indices.constant < 0, indices.constant + size, indices.constant).astype(np.intp)
    if known.ndim == 0:
        place = (slice(None),) * axis + (int(known),)
        return Into(lambda data, indices, y: np.copyto(y, data[place]))
    return Into(lambda data, indices, y: data.take(known, axis, y, "clip"))


def _checked(axis: int, size: int) -> Callable[..., Any]:
    def call(data: np.ndarray, indices: np.ndarray, y: np.ndarray) -> None:
        flat = indices.reshape(-1)
        if np.minimum.reduce(flat) < -size or np.maximum.reduce(flat) >= size:
            raise out_of_bounds(flat, size)
        data.take(indices, axis, y, "wrap")

    return call
