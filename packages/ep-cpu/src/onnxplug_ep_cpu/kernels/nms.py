"""NonMaxSuppression with generated code for the boxes of a class."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug_kernels.ops.vision import check_boxes, non_max_suppression


def suppression(*, center_point_box: int = 0) -> Callable[..., np.ndarray]:
    """The kernel of a node. NumPy computes what is unusual: no limit, other types, scores that are not finite."""

    def call(boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None) -> np.ndarray:
        limited, scored = most is not None and most.size, least is not None and least.size
        single = boxes.dtype == _SINGLE == scores.dtype
        if not (limited and single and (scored or np.isfinite(scores).all())):
            found: np.ndarray = non_max_suppression(
                np, boxes, scores, most, overlap, least, center_point_box=center_point_box
            )
            return found
        limit = 0.0 if overlap is None or not overlap.size else overlap.item(0)
        check_boxes(boxes, scores, limit)
        above = least.item(0) if scored else -math.inf
        return _selected(bool(center_point_box), boxes, scores, most.item(0), above, limit)

    return call


def _selected(
    centered: bool, boxes: np.ndarray, scores: np.ndarray, most: int, above: float, limit: float
) -> np.ndarray:
    """(image, class, box) of the boxes that stay, best first in each class."""
    images, classes, count = scores.shape
    most = min(most, count)
    if most <= 0 or scores.size == 0:
        return np.zeros((0, 3), np.int64)
    run, lanes, memory, address = _native(centered)
    room = -(-most // lanes) * lanes
    given = boxes if boxes.flags.num & 1 else np.ascontiguousarray(boxes)
    scored = scores if scores.flags.num & 1 else np.ascontiguousarray(scores)
    rows = images * classes * most
    space = np.empty(3 * rows + 1 + -(-memory(count, room) // 8), np.int64)  # the result, its end, memory
    at = address(space)
    end = at + 24 * rows
    run(_pack(address(given), address(scored), count, classes, above, limit, most, room, at, end, end + 8), 0, images)
    return space[: (space.item(3 * rows) - at) // 8].reshape(-1, 3).copy()


_SINGLE = np.dtype(np.float32)
_pack = struct.Struct("4q2f5q").pack


@functools.cache
def _native(centered: bool) -> tuple[Any, int, Callable[[int, int], int], Callable[[np.ndarray], int]]:
    """The generated function, the lanes of its vectors, the bytes that it needs, and where an array's elements are."""
    from onnxplug_ep_cpu.codegen.compiler import compiler
    from onnxplug_ep_cpu.codegen.elements import address
    from onnxplug_ep_cpu.codegen.kernels.suppress import Suppress, memory
    from onnxplug_ep_cpu.codegen.target import host_target

    target = host_target()
    kernel = Suppress(centered)
    code = compiler(target).addresses([kernel])[kernel]
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)(code), target.lanes, memory, address
