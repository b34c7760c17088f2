"""What a structure tries of its operator: values of attributes, operands that are there or not, extents that differ between axes.

A kernel that ignores an attribute, or takes one axis's number for another's, is right for every structure that lacks the feature.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import helper

from onnxplug_testkit.kernels.structures import Structure

Feature = tuple[str, object]
_FEW = 8
"""Lists of whole numbers up to this length are parameters of axes."""


@functools.cache
def features(structure: Structure) -> frozenset[Feature]:
    """The features of a structure, which mean something among structures of one operator."""
    attributes = {a.name: helper.get_attribute_value(a) for a in structure.attributes.values()}
    found = {feature for name, value in attributes.items() for feature in _of_attribute(name, value)}
    words = sorted((name, value) for name, value in attributes.items() if isinstance(value, bytes))
    if structure.inputs and isinstance(structure.inputs[0], np.ndarray):
        rank = structure.inputs[0].ndim
        found.update((name, _turned(value, rank)) for name, value in attributes.items() if name.startswith("ax"))
    found.update((f"{a[0]} and {b[0]}", (a[1], b[1])) for a, b in itertools.combinations(words, 2))
    found.update(feature for i, value in enumerate(structure.inputs) for feature in _of_operand(f"input {i}", value))
    found.update((f"output {i}", value is None) for i, value in enumerate(structure.outputs))
    return frozenset(found | {("operands", (len(structure.inputs), len(structure.outputs)))})


def _turned(value: Any, rank: int) -> str:
    """Whether an axis is counted from the end, and whether the same number counted from the start is another."""
    axes = value if isinstance(value, Sequence) else [value]
    return "another without its sign" if any(v < 0 and -v != v + rank for v in axes) else "the same without its sign"


def _of_attribute(name: str, value: Any) -> Iterator[Feature]:
    if isinstance(value, int):
        yield name, max(-1, min(value, 2))
    elif isinstance(value, bytes):
        yield name, value
    elif isinstance(value, Sequence) and value and isinstance(value[0], int):
        yield from _of_list(name, value)
    else:
        yield name, "given"


def _of_operand(name: str, value: Any) -> Iterator[Feature]:
    yield name, value is None
    if isinstance(value, np.ndarray):
        yield f"rank of {name}", value.ndim
        if value.dtype.kind == "i" and value.ndim < 2 and value.size <= _FEW:
            yield from _of_list(name, value.ravel().tolist())


def _of_list(name: str, values: Sequence[int]) -> Iterator[Feature]:
    yield name, "uneven" if len(set(values)) > 1 else "even"
    yield name, "negative" if any(v < 0 for v in values) else "positive"
