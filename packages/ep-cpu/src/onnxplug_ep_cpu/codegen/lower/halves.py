"""Weights that 16 bits hold: a product of a few rows is bound by memory, and reads half as much of it.

Nothing is rounded. Models of half precision have such weights, and so have those of float32 that were made of them, by a Cast or by
whoever exported a checkpoint of bfloat16: their numbers are float32, of which the last 13 or 16 bits are zero.
"""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen.fuse import readers_of
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.support import rank
from onnxplug_ep_cpu.codegen.tensor import NARROW, element_of, is_narrow

SMALLEST = 1 << 18
"""Weights that fewer elements have stay in a cache."""
_PART = 1 << 16
"""Elements that are looked at while they lie in a cache."""
_LARGEST, _NORMAL, _UNIT = 65504.0, 2.0**-14, 2.0**-24
"""Of float16: the largest number, the smallest of all its digits, and the smallest."""


def held_as(b: Lowering, weights: ValueView) -> str:
    """The element type in which a constant is packed: "float16" or "bfloat16" if it holds every number, else "float32"."""
    known = b.prepared.halves
    if weights.name not in known:
        known[weights.name] = _held_as(b, weights)
    return known[weights.name]


def _held_as(b: Lowering, weights: ValueView) -> str:
    if weights.name not in b.prepared.constant or weights.dtype is None or b.target.name == "generic":
        return "float32"  # without instructions that widen
    if math.prod(b.shape(weights)) < SMALLEST:
        return "float32"
    element = element_of(weights.dtype)
    if element in NARROW:
        return element
    array = weights.view()
    return "float32" if array is None or element != "float32" else narrowest(array)


def multiplies_only(b: Lowering, weights: ValueView, widened: ValueView) -> bool:
    """Whether a constant of 16 bits is widened for products alone: they read it as it is, however large."""
    if weights.name not in b.prepared.constant or not is_narrow(weights.dtype) or widened.dtype != np.float32:
        return False
    if widened.name in b.outputs or len(b.shape(weights)) != 2:
        return False
    return all(_multiplies(node, widened) for node in readers_of(widened))


def _multiplies(node: NodeView, value: ValueView) -> bool:
    """Whether a node multiplies matrices by a value and does nothing else with it."""
    if node.domain or node.op_type not in ("MatMul", "Gemm"):
        return False
    x, w, *rest = node.inputs
    return w is value and x is not None and rank(x) >= 2 and all(v is not value for v in (x, *rest))


def narrowest(array: np.ndarray) -> str:
    """The element type of 16 bits that holds all numbers of a float32 array, "float32" where none does."""
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
    parts = [flat[at : at + _PART] for at in range(0, flat.size, _PART)]
    used = 0
    for part in parts:
        used |= int(np.bitwise_or.reduce(part.view(np.uint32)))
        if used & 0x1FFF:
            return "float32"
    if not used & 0xFFFF:
        return "bfloat16"
    return "float16" if all(map(_fits_half, parts)) else "float32"


def _fits_half(part: np.ndarray) -> bool:
    """Whether numbers of no more than 10 bits behind the first are float16's."""
    size = np.abs(part)
    steps = size[size < _NORMAL] / np.float32(_UNIT)
    return bool(size.max() <= _LARGEST) and bool((steps == np.rint(steps)).all())
