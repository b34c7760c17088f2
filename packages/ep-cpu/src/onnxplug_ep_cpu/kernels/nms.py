"""NonMaxSuppression with generated code for the boxes of a class."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from onnxplug_kernels.ops.vision import check_boxes, corners, non_max_suppression


def suppression(*, center_point_box: int = 0) -> Any:
    """The kernel of a node. What is unusual (no limit, other types, scores that are no numbers) goes by NumPy."""

    def call(boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None) -> np.ndarray:
        limited, scored = (a is not None and a.size for a in (most, least))
        usual = limited and boxes.dtype == scores.dtype == np.float32 and (scored or np.isfinite(scores).all())
        if not usual:
            return non_max_suppression(  # type: ignore[no-any-return]
                np, boxes, scores, most, overlap, least, center_point_box=center_point_box
            )
        check_boxes(boxes, scores)
        limit = np.zeros(1, np.float32) if overlap is None or not overlap.size else overlap.reshape(-1)[:1]
        rows = []
        for image, (own, by_class) in enumerate(zip(boxes, scores, strict=True)):
            left, top, right, bottom = corners(np, own, center_point_box)
            sides = np.stack([left, top, right, bottom, (right - left) * (bottom - top)])
            for category, score in enumerate(by_class):
                able = np.flatnonzero(score > np.float32(least.reshape(-1)[0])) if scored else np.arange(len(score))
                taken = able[_taken(sides[:, able], score[able], int(most.reshape(-1)[0]), limit.astype(np.float32))]
                row = np.empty((len(taken), 3), np.int64)
                row[:, 0], row[:, 1], row[:, 2] = image, category, taken
                rows.append(row)
        return np.concatenate(rows) if rows else np.zeros((0, 3), np.int64)

    return call


def _taken(sides: np.ndarray, scores: np.ndarray, most: int, limit: np.ndarray) -> np.ndarray:
    """The numbers of the boxes that stay, best first."""
    run, lanes = _native()
    boxes = len(scores)
    most = min(most, boxes)
    if most <= 0:
        return np.zeros(0, np.int64)
    room = -(-boxes // lanes) * lanes
    padded = np.zeros((5, room), np.float32)
    padded[:, :boxes] = sides
    left = np.full(room, -np.inf, np.float32)
    left[:boxes] = scores
    result, count = np.empty(most, np.int32), np.zeros(1, np.int64)
    arrays = (padded, left, limit, result, count)
    at = [a.ctypes.data for a in arrays]
    args = np.array([at[0], 4 * room, at[1], room, most, at[2], at[3], at[4]], np.int64)
    run(args.ctypes.data, 0, 1)
    return result[: count[0]].astype(np.int64)


@functools.cache
def _native() -> tuple[Any, int]:
    """The generated function and the lanes of its vectors."""
    from onnxplug_ep_cpu.codegen.compiler import compiler
    from onnxplug_ep_cpu.codegen.kernels.suppress import Suppress
    from onnxplug_ep_cpu.codegen.target import host_target

    target = host_target()
    kernel = Suppress()
    address = compiler(target).addresses([kernel])[kernel]
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address), target.lanes
