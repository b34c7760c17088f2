"""Weights of 8-bit products by quads of k, sorted by how each quad is multiplied exactly (see ``kernels.qdot``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.bytedots import quad_form
from onnxplug_ep_cpu.codegen.kernels.qdot import CLASSES, PAIRINGS
from onnxplug_ep_cpu.codegen.kernels.quads import MATCHINGS, OCTET, PackQuads
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.qgemm import written
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor


@record(frozen=True, slots=True)
class QuadWeights:
    """Packed weights of k x n: words, where quads begin, ends of classes and sums of columns, as ``QDot`` reads them; ``rest`` is
    what is yet to be taken from the columns, if anything."""

    words: Tensor
    order: Tensor
    ends: Tensor
    sums: Tensor
    places: Tensor | None
    k: int
    n: int
    vectors: int
    rest: Tensor | None = None


def quad_vectors(target: Target, n: int) -> int:
    """Vectors across a panel for ``n`` columns. Where lanes are masked at no cost, columns may end inside the last vector of a
    panel."""
    most = 2 if target.registers == 16 else 4
    if target.name == "avx512" and quad_form(target) == "vnni":
        fitting = [v for v in range(1, most + 1) if (v - 1) * target.lanes < n]
    else:
        fitting = [v for v in (1, 2, 4) if v <= most and (v == 1 or v * target.lanes <= n)]
    return min(fitting, key=lambda v: (-(-n // (v * target.lanes)) * (v + 0.5), -v))


def quads_of(k: int) -> int:
    """Quads of k, two to an octet."""
    return -(-k // 8) * 2


def quad_weights(
    b: Lowering,
    value: ValueView,
    form: object,
    sizes: tuple[int, int],
    lies: Callable[[Tensor], Ints],
    zero: np.ndarray | None,
    first: int = 0,
) -> QuadWeights | None:
    """A constant as the kernel reads it; None where the target has no such kernel for weights that less their zero points are no
    int8.

    ``sizes`` are k and the columns. ``lies`` says how the constant lies: k in runs of so many, the steps from run to run and
    inside one, and the step from column to column. ``zero`` points are one, or one a column. The matrix begins at element
    ``first`` of the constant.
    """
    how = quad_form(b.target)
    k, n = sizes
    if how is None or 0 in sizes:
        return None
    vectors = quad_vectors(b.target, n)
    width, panels, quads = vectors * b.target.lanes, -(-n // (vectors * b.target.lanes)), quads_of(k)
    parts = panels * quads * width, panels * quads, panels * CLASSES, max(n, width)
    plain, rest = ("quads", form, first, vectors), None
    form = (*plain, written(zero))
    if b.prepared.held(value, form) is None and not _fits(b, value, zero):
        if how == "pairs" or k % OCTET:
            return None
        base = 128 if b.element(value) == "uint8" else 0
        points = np.zeros(1, np.int32) if zero is None else zero.astype(np.int32).reshape(-1)
        rest = b.tensor_of(np.array(np.broadcast_to(points - base, n)))
        form, zero = (*plain, "lifted"), np.array([base], b.element(value))
    starts = [0, *itertools.accumulate(parts)]

    def split(held: Tensor) -> list[Tensor]:
        return [held.shift(at).viewed((part,), (1,)) for at, part in zip(starts, parts, strict=False)]

    def fill(source: Tensor, result: Tensor) -> None:
        points = np.zeros(n, np.int8) if zero is None else np.ascontiguousarray(np.broadcast_to(zero.reshape(-1), n))
        words, order, ends, sums = split(result)
        run, outer, inner, column = lies(source)
        source = source.shift(first)
        unsorted = b.scratch((parts[0],), element="int32") if how == "pairs" else words
        codes = b.scratch((parts[1],), element="int32") if how == "pairs" else order
        kernel = PackQuads(vectors, how == "pairs", column == 1, n < width)
        args: list[int | Ref] = [
            words.ref, order.ref, ends.ref, sums.ref, source.ref, b.tensor_of(points).ref, unsorted.ref, codes.ref,
            b.tensor_of(MATCHINGS).ref, b.tensor_of(np.array(PAIRINGS, np.int8)).ref, k, n, quads, run, outer, inner, column,
        ]  # fmt: skip
        b.packing.call(kernel, args, panels, 3.0 * k * n)

    words, order, ends, sums = split(in_form(b, value, form, (sum(parts),), fill, "int32"))
    places = b.tensor_of(np.array(PAIRINGS, np.int8)) if how == "pairs" else None
    return QuadWeights(words, order, ends, sums, places, k, n, vectors, rest)


def _fits(b: Lowering, value: ValueView, zero: np.ndarray | None) -> bool:
    """Whether int8 holds every weight less its zero point."""
    points = np.zeros(1, np.int16) if zero is None else zero.astype(np.int16).reshape(-1)
    if (points == (0 if b.element(value) == "int8" else 128)).all():
        return True
    array = b.constant(value)
    assert array is not None
    low, high = int(array.min()) - int(points.max()), int(array.max()) - int(points.min())
    return low >= -128 and high <= 127
