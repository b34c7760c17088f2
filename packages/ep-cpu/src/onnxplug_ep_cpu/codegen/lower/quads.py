"""Weights of 8-bit products by quads of k, sorted by how each quad is multiplied exactly (see ``kernels.qdot``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen.kernels.qdot import CLASSES, LARGEST_PAIR, PAIRINGS, quad_form
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor

CHUNK = 128
"""Panels sorted together, which bounds the memory it takes."""
PAIRS = tuple(itertools.combinations(range(8), 2))
WAYS = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))
"""How the bytes of a quad may be paired among themselves."""
NO_WAY = len(WAYS)


def _matchings(left: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every way to pair all of ``left``."""
    if not left:
        yield ()
    for other in left[1:]:
        for rest in _matchings(tuple(i for i in left[1:] if i != other)):
            yield ((left[0], other), *rest)


_WHOLE = tuple(_matchings(tuple(range(8))))
MATCHINGS = np.array([[PAIRS.index(pair) for pair in whole] for whole in _WHOLE])
"""Every way to pair the bytes of an octet, as numbers of ``PAIRS``."""
MATCHED = np.array([[PAIRINGS.index(one + two) for one, two in (whole[:2], whole[2:])] for whole in _WHOLE])
"""The same as two of ``PAIRINGS``."""
WITHIN = np.array([[PAIRINGS.index((a + h, b + h, c + h, d + h)) for a, b, c, d in WAYS] + [0] for h in (0, 4)])
"""[half of an octet, way] as one of ``PAIRINGS``; what has none counts as the first."""


@dataclass(frozen=True, slots=True)
class QuadWeights:
    """Packed weights of k x n: words, where quads begin, ends of classes and sums of columns, as ``QDot`` reads them."""

    words: Tensor
    order: Tensor
    ends: Tensor
    sums: Tensor
    places: Tensor | None
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
    held, panels, quads = b.tensor_of(packed), -(-n // width), quads_of(k)
    parts = panels * quads * width, panels * quads, panels * CLASSES, n
    starts = itertools.accumulate(parts, initial=0)
    words, order, ends, sums = (held.shift(at).viewed((part,), (1,)) for at, part in zip(starts, parts, strict=False))
    places = b.tensor_of(np.array(PAIRINGS, np.int8)) if how == "pairs" else None
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
    of columns. k is filled up with zeros to whole octets; the last panel overlaps the one before it, or ends in zeros.
    ``pairs``: quads are sorted by class; otherwise all belong to the first."""
    k, n = array.shape
    sums = array.sum(axis=0, dtype=np.int32)
    panels, quads = -(-n // width), quads_of(k)
    if 4 * quads != k or n < width:
        array = np.pad(array, ((0, 4 * quads - k), (0, max(0, width - n))))
    if n % width and panels > 1:
        array = np.concatenate([array[:, : (panels - 1) * width], array[:, n - width :]], axis=1)
    by_quad = np.ascontiguousarray(array).reshape(quads, 4, -1)
    bytes_ = by_quad.view(np.uint8)
    whole = bytes_[:, 3].astype(np.uint32)
    for byte in (2, 1, 0):
        whole <<= 8
        whole |= bytes_[:, byte]
    words = np.ascontiguousarray(whole.reshape(quads, panels, width).transpose(1, 0, 2))
    order = np.empty((panels, quads), np.int32)
    order[...] = 4 * np.arange(quads)
    ends = np.full((panels, CLASSES), quads, np.int32)
    if pairs:
        for at in range(0, panels, CHUNK):
            part = slice(at, at + CHUNK)
            _sort(words[part], order[part], ends[part], by_quad[..., at * width : (at + CHUNK) * width])
    return np.concatenate([part.reshape(-1) for part in (words.view(np.int32), order, ends, sums)])


def quads_of(k: int) -> int:
    """Quads of k, two to an octet."""
    return -(-k // 8) * 2


def _sort(words: np.ndarray, order: np.ndarray, ends: np.ndarray, by_quad: np.ndarray) -> None:
    """Bring the quads of some panels into the order of their classes."""
    quads, width = words.shape[1:]
    choice = _within(by_quad, width)
    pairing = WITHIN[np.arange(quads) % 2, choice]
    choice[_across(words, choice, pairing)] = 1
    panel, quad = np.nonzero((choice == 1) | (choice == 2))
    places = np.array(PAIRINGS, np.uint64)[pairing[panel, quad]]
    octets = words[panel, quad | 1].astype(np.uint64) << np.uint64(32) | words[panel, quad & ~1]
    moved = np.zeros(octets.shape, np.uint64)
    for byte in range(3, -1, -1):
        moved = moved << np.uint64(8) | (octets >> 8 * places[:, byte, None]) & np.uint64(255)
    words[panel, quad] = moved
    order[panel, quad] = quad // 2 * 8 << 8 | pairing[panel, quad]
    classes = np.array([0, 1, 1, 2], np.int8)[choice]
    turn = np.argsort(classes, axis=1, kind="stable")
    words[...] = np.take_along_axis(words, turn[..., None], axis=1)
    order[...] = np.take_along_axis(order, turn, axis=1)
    for number in range(CLASSES):
        ends[:, number] = np.count_nonzero(classes <= number, axis=1)


def _beyond(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where two int16 weights may saturate: of one sign and beyond the limit. Pairs of different signs never are."""
    beyond: np.ndarray = (one + other + np.int16(LARGEST_PAIR)).view(np.uint16) > 2 * LARGEST_PAIR
    return beyond


def _within(by_quad: np.ndarray, width: int) -> np.ndarray:
    """[panel, quad] the first way to pair the bytes of a quad that is exact in every column, or ``NO_WAY``."""
    quads, _, columns = by_quad.shape
    wide = by_quad.astype(np.int16)
    found = np.zeros((quads, columns // width), np.int8)
    left = np.ones(found.shape, bool)
    for a, b, c, d in WAYS:
        wrong = _beyond(wide[:, a], wide[:, b]) | _beyond(wide[:, c], wide[:, d])
        left &= wrong.reshape(quads, -1, width // 8, 8).view(np.uint64).any(axis=(2, 3))
        found += left
    return np.ascontiguousarray(found.T)


def _across(words: np.ndarray, choice: np.ndarray, pairing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair the bytes of octets that have a quad without a way, where all four pairs can be exact; returns their quads."""
    panels, _, width = words.shape
    panel, octet = np.nonzero((choice == NO_WAY).reshape(panels, -1, 2).any(axis=2))
    chosen = words.reshape(panels, -1, 2, width)[panel, octet]
    signed = chosen.view(np.int8).reshape(-1, 2, width, 4).transpose(0, 1, 3, 2).reshape(-1, 8, width).astype(np.int16)
    wrong = np.empty((len(panel), len(PAIRS)), bool)
    for number, (a, b) in enumerate(PAIRS):
        wrong[:, number] = _beyond(signed[:, a], signed[:, b]).any(axis=1)
    fine: np.ndarray = ~np.any(wrong[:, MATCHINGS], axis=2)
    matched = fine.any(axis=1)
    panel, octet, which = panel[matched], octet[matched], fine[matched].argmax(axis=1)
    both = np.repeat(panel, 2), (2 * octet[:, None] + (0, 1)).reshape(-1)
    pairing[both] = MATCHED[which].reshape(-1)
    return both
