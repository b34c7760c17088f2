"""NonMaxSuppression and CenterCropPad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string
from onnxplug_kernels.refusals import Refusal, require_axis

# NonMaxSuppression compares boxes this many at a time: few enough that those never reached cost little.
CHUNK = 128


@op("NonMaxSuppression", 10, 11, host_inputs=(2, 3, 4), portable=False)
def non_max_suppression(
    xp: Any,
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: Any = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """Per batch and class, the highest-scoring boxes of which no two overlap by more than ``iou_threshold``.

    ``boxes`` is (batches, boxes, 4), ``scores`` (batches, classes, boxes); returns int64 rows of (batch, class, box).
    """
    most, share = _scalar(max_output_boxes_per_class, 0), _scalar(iou_threshold, 0.0)
    check_boxes(boxes, scores, share)
    overlap = xp.float32(share)
    least = _scalar(score_threshold, None)
    selected = []
    for batch in range(boxes.shape[0] if most > 0 else 0):
        sides = corners(xp, boxes[batch], center_point_box)
        for category in range(scores.shape[1]):
            score = scores[batch, category]
            order = xp.argsort(-score, stable=True)
            if least is not None:
                order = order[score[order] > xp.float32(least)]
            kept = _greedy(xp, sides, order, most, overlap)
            selected += [(batch, category, int(box)) for box in kept]
    return xp.asarray(selected, dtype=xp.int64).reshape(-1, 3)


def check_boxes(boxes: Any, scores: Any, iou_threshold: float) -> None:
    """ValueError for boxes and scores of shapes that do not belong together, and for a share of an area that is none."""
    counts = (scores.shape[0], scores.shape[2]) if scores.ndim == 3 else ()
    if boxes.ndim != 3 or boxes.shape[2] != 4 or tuple(boxes.shape[:2]) != counts:
        raise ValueError(f"NonMaxSuppression: no scores of shape {tuple(scores.shape)} for boxes {tuple(boxes.shape)}")
    if not 0 <= iou_threshold <= 1:
        raise ValueError(f"NonMaxSuppression: iou_threshold {iou_threshold} is not in [0, 1]")


def _scalar(value: Any, default: Any) -> Any:
    return default if value is None or value.size == 0 else value.reshape(-1)[0].item()


def corners(xp: Any, boxes: Any, center_point_box: int) -> tuple[Any, Any, Any, Any]:
    """(left, top, right, bottom) of every box."""
    if center_point_box:
        x, y, width, height = boxes.T
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    y1, x1, y2, x2 = boxes.T
    return xp.minimum(x1, x2), xp.minimum(y1, y2), xp.maximum(x1, x2), xp.maximum(y1, y2)


def _greedy(xp: Any, corners: tuple[Any, Any, Any, Any], order: Any, most: int, overlap: Any) -> Any:
    """Take the first box, drop what overlaps it too much, and so on; a chunk of boxes at a time."""
    kept = order[:0]
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        chunk = chunk[~xp.any(_overlapping(xp, corners, kept, chunk, overlap), axis=0)]
        clash = _overlapping(xp, corners, chunk, chunk, overlap)
        alive = xp.ones(len(chunk), dtype=xp.bool)
        for place in range(len(chunk)):
            if alive[place]:
                alive[place + 1 :] &= ~clash[place, place + 1 :]
        kept = xp.concat([kept, chunk[alive]])
        if len(kept) >= most:
            break
    return kept[:most]


def _overlapping(xp: Any, corners: tuple[Any, Any, Any, Any], first: Any, second: Any, overlap: Any) -> Any:
    """(first, second) matrix: whether intersection over union is above ``overlap``. Boxes without area meet none."""
    left, top, right, bottom = ((side[first][:, None], side[second]) for side in corners)
    width = xp.minimum(*right) - xp.maximum(*left)
    height = xp.minimum(*bottom) - xp.maximum(*top)
    common = xp.maximum(width, 0) * xp.maximum(height, 0)
    areas = [(right[i] - left[i]) * (bottom[i] - top[i]) for i in range(2)]
    union = areas[0] + areas[1] - common
    meets = (common > 0) & (areas[0] > 0) & (areas[1] > 0) & (union > 0)
    return meets & (common / xp.where(meets, union, 1) > overlap)


@op("CenterCropPad", 18, host_inputs=(1,))
def center_crop_pad(xp: Any, x: Any, shape: Any, *, axes: Sequence[int] | None = None) -> Any:
    """Bring ``axes`` to the sizes of ``shape`` by cropping or zero-padding both ends, the odd element at the end."""
    wanted, sizes = list(x.shape), shape.reshape(-1).tolist()
    places = range(x.ndim) if axes is None else [require_axis(axis, x.ndim) for axis in axes]
    if len(sizes) != len(places) or min(sizes, default=0) < 0:
        raise Refusal(f"sizes {sizes} are not one for each of the {len(places)} axes")
    for axis, size in zip(places, sizes, strict=True):
        wanted[axis] = size
    y = np.full(tuple(wanted), "", dtype=object) if is_string(x) else xp.zeros(tuple(wanted), dtype=x.dtype)
    source, target = [], []
    for have, want in zip(x.shape, wanted, strict=True):
        cut, gap = max(0, have - want) // 2, max(0, want - have) // 2
        source.append(slice(cut, cut + min(have, want)))
        target.append(slice(gap, gap + min(have, want)))
    y[tuple(target)] = x[tuple(source)]
    return y
