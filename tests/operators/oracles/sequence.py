"""Sequences, optionals, strings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, by_reference, oracle


@oracle(
    "Optional",
    sentence="Constructs an optional-type value containing either an empty optional of a certain type, or the input element",
)
def optional(case: Case, x: list[Any]) -> Any:
    return case.inputs[0]


@oracle(
    "SequenceInsert",
    sentence="Accepted range for 'position' is in [-n, n]; onnx.reference takes n for 0",
    wrong=lambda case: case.inputs[2] is not None,
)
def insert(case: Case, x: list[Any]) -> Any:
    items, tensor, place = case.inputs
    found = list(items)
    found.insert(int(place), tensor)
    return found


@oracle(
    "StringSplit",
    sentence="where the delimiter is unspecified or empty, leading or trailing whitespace is removed in the output; of an empty string there"
    " are no substrings, as in onnxruntime",
    wrong=always,
)
def split(case: Case, x: list[Any]) -> Any:
    delimiter, most = case.attributes.get("delimiter") or None, case.attributes.get("maxsplit", -1)
    data = case.inputs[0]
    words = data.ravel().tolist() if delimiter else [text.strip() for text in data.ravel().tolist()]
    parts = [text.split(delimiter, most) if text else [] for text in words]
    width = max(map(len, parts), default=0)
    padded = [part + [""] * (width - len(part)) for part in parts]
    counts = np.array([len(part) for part in parts], np.int64).reshape(data.shape)
    return np.array(padded, object).reshape(*data.shape, width), counts


@oracle(
    "RegexFullMatch",
    sentence="full match, with the regular expression in the syntax of RE2: \\p{L} is a letter of any script",
    wrong=lambda case: "\\p" in case.attributes["pattern"],
)
def regex(case: Case, x: list[Any]) -> Any:
    pattern = case.attributes["pattern"].replace("\\p{L}", r"[^\W\d_]")
    found = [re.fullmatch(pattern, text) is not None for text in case.inputs[0].ravel().tolist()]
    return np.array(found, bool).reshape(case.inputs[0].shape)


@oracle("TfIdfVectorizer", sentence="By default, weights is an all-one tensor")
def tfidf(case: Case, x: list[Any]) -> Any:
    return by_reference("TfIdfVectorizer", 9, case.inputs, {"weights": [1.0] * 4, **case.attributes})


@oracle(
    "NonMaxSuppression",
    sentence="iou_threshold and score_threshold are optional; boxes with IoU strictly greater than the threshold are suppressed",
)
def non_max_suppression(case: Case, x: list[Any]) -> Any:
    boxes, scores, most, overlap, least = [*case.inputs, None, None, None][:5]
    most = 0 if most is None else int(most[0])
    overlap, least = (None if v is None else float(v[0]) for v in (overlap, least))
    found: list[list[int]] = []
    for n, c in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for k in np.argsort(-scores[n, c], kind="stable"):
            if len(kept) == most or (least is not None and scores[n, c, k] <= least):
                break
            if all(_iou(case, boxes[n, k], boxes[n, j]) <= (overlap or 0.0) for j in kept):
                kept.append(int(k))
        found += [[n, c, k] for k in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _iou(case: Case, a: Any, b: Any) -> float:
    sides = [_sides(case, box.astype(np.float64)) for box in (a, b)]
    shared = np.prod([max(0.0, min(p[1], q[1]) - max(p[0], q[0])) for p, q in zip(*sides, strict=True)])
    areas = [np.prod([high - low for low, high in box]) for box in sides]
    return float(shared / (sum(areas) - shared))


def _sides(case: Case, box: Any) -> list[tuple[float, float]]:
    if case.attributes.get("center_point_box"):
        return [(box[i] - box[i + 2] / 2, box[i] + box[i + 2] / 2) for i in range(2)]
    return [(min(box[i], box[i + 2]), max(box[i], box[i + 2])) for i in range(2)]
