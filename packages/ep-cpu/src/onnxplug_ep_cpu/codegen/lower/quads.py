"""Weights of 8-bit products by quads of k, sorted by how each quad is multiplied exactly (see ``kernels.qdot``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen.kernels.qdot import CLASSES, LARGEST_PAIR, ORDERS, quad_form, shuffles
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor


@dataclass(frozen=True, slots=True)
class QuadWeights:
    """Packed weights of k x n: words, where quads begin, ends of classes and sums of columns, as ``QDot`` reads them."""

    words: Tensor
    order: Tensor
    ends: Tensor
    sums: Tensor
    shuffles: Tensor | None
    k: int
    n: int
    vectors: int


def quad_vectors(target: Target, n: int) -> int:
    """Vectors across a panel for ``n`` columns."""
    most = 2 if target.registers == 16 else 4
    fitting = [v for v in (1, 2, 4) if v <= most and (v == 1 or v * target.lanes <= n)]
    return min(fitting, key=lambda v: (-(-n // (v * target.lanes)) * (v + 0.5), -v))


def quad_weights(
    b: Lowering,
    value: ValueView,
    form: object,
    sizes: tuple[int, int],
    taken: Callable[[np.ndarray], np.ndarray],
    zero: np.ndarray | None,
) -> QuadWeights | None:
    """A constant as the kernel reads it; None where the target has no such kernel or a weight less its zero point is no int8.
    ``taken`` gives it as [k, column], of ``sizes``."""
    how = quad_form(b.target)
    (k, n), lanes = sizes, b.target.lanes
    if how is None or 0 in sizes:
        return None
    vectors = quad_vectors(b.target, n)
    width = vectors * lanes

    def make(array: np.ndarray) -> np.ndarray:
        signed = _less_zero(taken(array), zero)
        return np.zeros(0, np.int32) if signed is None else pack_quads(signed, width, how == "pairs")

    packed = b.prepared.packed(value, ("quads", form, vectors), make)
    if packed.size == 0:
        return None
    held, panels, quads = b.tensor_of(packed), -(-n // width), -(-k // 4)
    parts = panels * quads * width, panels * quads, panels * CLASSES, n
    starts = itertools.accumulate(parts, initial=0)
    words, order, ends, sums = (held.shift(at).viewed((part,), (1,)) for at, part in zip(starts, parts, strict=False))
    places = b.tensor_of(np.array(shuffles(lanes), np.int8)) if how == "pairs" else None
    return QuadWeights(words, order, ends, sums, places, k, n, vectors)


def _less_zero(array: np.ndarray, zero: np.ndarray | None) -> np.ndarray | None:
    """8-bit [k, column] weights less their zero points (one, or one a column) as int8, or None where that does not hold them."""
    if zero is not None and np.any(zero):
        array = array.astype(np.int16) - zero.astype(np.int16).reshape(-1)
    if array.dtype != np.int8 and (array.min() < -128 or array.max() > 127):
        return None
    return array.astype(np.int8, copy=False)


def pack_quads(array: np.ndarray, width: int, pairs: bool) -> np.ndarray:
    """int8 [k, column] as one int32 array: words [panel][quad][column], where each quad begins, [panel] ends of classes, sums
    of columns. The last panel overlaps the one before it, or ends in zeros. ``pairs``: quads are sorted by class, with the bytes
    of their weights in the order of their class; otherwise all belong to the first."""
    k, n = array.shape
    sums = array.sum(axis=0, dtype=np.int32)
    panels, quads = -(-n // width), -(-k // 4)
    if k % 4 or n < width:
        array = np.pad(array, ((0, -k % 4), (0, max(0, width - n))))
    if n % width and panels > 1:
        array = np.concatenate([array[:, : (panels - 1) * width], array[:, n - width :]], axis=1)
    by_quad = array.reshape(quads, 4, -1)
    bytes_ = by_quad.view(np.uint8)
    words = bytes_[:, 3].astype(np.uint32)
    for byte in (2, 1, 0):
        words <<= 8
        words |= bytes_[:, byte]
    words = words.reshape(quads, panels, width).transpose(1, 0, 2)
    order = np.broadcast_to(np.arange(quads), (panels, quads))
    ends = np.full((panels, CLASSES), quads)
    if pairs:
        paired = _orders(by_quad, width)
        order = np.argsort(paired, axis=1, kind="stable")
        counts = [np.count_nonzero(paired <= last, axis=1) for last in (0, len(ORDERS) - 1, len(ORDERS))]
        ends = np.stack(counts, axis=1)
        words = np.take_along_axis(words, order[..., None], axis=1)
        paired = np.take_along_axis(paired, order, axis=1)
        for number, places in enumerate(ORDERS[1:], 1):
            words[paired == number] = _reordered(words[paired == number], places)
        order = 4 * order + paired % len(ORDERS)
    else:
        order = 4 * order
    parts = words.astype(np.uint32, copy=False).view(np.int32), order, ends, sums
    return np.concatenate([part.astype(np.int32, copy=False).reshape(-1) for part in parts])


def _reordered(words: np.ndarray, places: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(words.view(np.uint8).reshape(-1, 4)[:, places]).view(np.uint32).reshape(words.shape)


def _orders(by_quad: np.ndarray, width: int) -> np.ndarray:
    """[panel, quad] the number of the first of ``ORDERS`` whose pairs are exact in every column, or how many there are."""
    quads, _, columns = by_quad.shape
    found = np.zeros((quads, columns // width), np.int8)
    left = np.ones(found.shape, bool)
    for first, second, third, fourth in ORDERS:
        wrong = np.zeros((quads, columns), bool)
        for one, other in ((first, second), (third, fourth)):
            # of one sign and beyond the limit; pairs of different signs never are
            total = by_quad[:, one].astype(np.int16) + by_quad[:, other]
            wrong |= (total + np.int16(LARGEST_PAIR)).view(np.uint16) > 2 * LARGEST_PAIR
        left &= wrong.reshape(quads, -1, width // 8, 8).view(np.uint64).any(axis=(2, 3))
        found += left
    return found.T
