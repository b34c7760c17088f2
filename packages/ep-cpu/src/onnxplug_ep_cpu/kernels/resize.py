"""Resize of images whose sizes data decide, with generated code that serves any size.

A region is bound to shapes, which takes several times as long as to resample one of the parts that a loop cuts out of an image.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_kernels.interpolation import Resampling
from onnxplug_kernels.ops.resize import resize_plans

Kernel = Callable[..., Any]

LONGEST = 4096
"""Elements of a row that the kernel is given: those of a few lie in a thread's stack."""
_MODES = ("linear", "cubic")
_SINGLE = np.dtype(np.float32)
_pack = struct.Struct("21q").pack


def serves(node: NodeView) -> bool:
    """Whether generated code resamples the node's images, if they are planes of floats."""
    x = node.inputs[0]
    if x is None or x.dtype != _SINGLE or node.op_type != "Resize" or node.since_version < 11:
        return False
    a = node.attributes
    if a.get("antialias", 0) or a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return False  # with so many taps, each number of which is a kernel; with elements from outside
    return a.get("mode") in _MODES


def resizing(node: NodeView, kernel: Kernel) -> Kernel:
    """The node's kernel; ``kernel`` takes what is no image of floats: another rank, no elements, rows that are too long."""
    if not serves(node):
        return kernel
    attributes = {name: value for name, value in node.attributes.items() if name != "extrapolation_value"}

    def call(x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
        if x.ndim != 4 or x.dtype != _SINGLE or not 0 < x.shape[3] <= LONGEST:
            return kernel(x, roi, scales, sizes)
        plans = resize_plans(x.shape, roi, scales, sizes, **attributes)
        if not plans or not _is_image(plans):
            return kernel(x, roi, scales, sizes)
        return _resampled(x, plans.get(2) or _kept(x.shape[2]), plans.get(3) or _kept(x.shape[3]))

    return call


def _is_image(plans: dict[int, Resampling]) -> bool:
    """Whether only heights and widths change, to some that have elements."""
    return plans.keys() <= {2, 3} and all(
        plan.weights is not None and 0 < len(plan.indices) <= LONGEST for plan in plans.values()
    )


@functools.lru_cache(16)
def _kept(size: int) -> Resampling:
    """An axis that stays as it is."""
    return Resampling(np.arange(size)[:, None], np.ones((size, 1)))


def _resampled(x: np.ndarray, down: Resampling, across: Resampling) -> np.ndarray:
    """Rows combined by ``down``, then columns by ``across``."""
    assert down.weights is not None and across.weights is not None
    images, channels, _, width = x.shape
    (count, taps), (made, steps) = down.indices.shape, across.indices.shape
    lanes, called, address = _native()
    if x.strides[3] != 4 or any(step % 4 for step in x.strides):
        x = np.ascontiguousarray(x)
    image, plane, line, _ = x.strides
    out = np.empty((images, channels, count, made), np.float32)
    rows, shares = (down.indices * (line // 4)).astype(np.int32), down.weights.astype(np.float32)
    columns, weights = across.indices.T.astype(np.int32, "C"), across.weights.T.astype(np.float32, "C")
    room = -(-(max(made, width) + 2 * lanes) // lanes) * lanes
    words = _pack(
        address(out), address(x), address(rows), 0, address(shares), address(columns), address(weights),
        channels, count, count, taps, width, made, 0, room,
        4 * channels * count * made, 4 * count * made, 4 * made, image, plane, 1,
    )  # fmt: skip
    called(steps, width < lanes, made < lanes)(words, 0, images * channels)
    return out


@functools.cache
def _native() -> tuple[int, Callable[..., Any], Callable[[np.ndarray], int]]:
    """The lanes of vectors, what gives the function for so many taps across, and where an array's elements are."""
    from onnxplug_ep_cpu.codegen.compiler import compiler
    from onnxplug_ep_cpu.codegen.elements import address
    from onnxplug_ep_cpu.codegen.kernels.planes import Planes
    from onnxplug_ep_cpu.codegen.target import host_target

    target = host_target()

    @functools.cache
    def called(taps: int, thin: bool, short: bool) -> Any:
        kernel = Planes("weighted", taps, thin=thin, short=short)
        code = compiler(target).addresses([kernel])[kernel]
        return ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)(code)

    return target.lanes, called, address
