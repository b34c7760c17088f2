"""Products of matrices: by constant weights, which are packed once, and of two computed tensors."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from onnxplug.contract import ValueView
from onnxplug.contract.sizes import greatest
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower import halves, narrow
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.packing import packed_panels
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import pending_product
from onnxplug_ep_cpu.codegen.lower.products import Matrix, product
from onnxplug_ep_cpu.codegen.lower.tiles import panel_vectors, varying_tile, wide_target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

TALL = 32
"""Rows from which on a computed right operand is packed first if its own rows are ``APART``, in bytes: a column of panels then
meets few lines of the first-level cache, or pages that are not near."""
APART = 256
WIDE = 8
"""Vectors of a tile of one row, which reads the right operand once: the longer its rows, the fewer turns."""


def batch_first(tensor: Tensor, moved: int) -> Tensor:
    """[m, batch..., k] as [batch..., m, k]."""
    n = len(tensor.shape)
    return tensor.transposed((*range(1, n - 1), 0, n - 1)) if moved else tensor


def turned(tensor: Tensor, transposed: bool) -> Tensor:
    """The last two dimensions changed about."""
    n = len(tensor.shape)
    return tensor.transposed((*range(n - 2), n - 1, n - 2)) if transposed and n > 1 else tensor


def matrix_product(
    b: Lowering, shape: Ints, x: ValueView, w: ValueView, x_transposed: bool = False, w_transposed: bool = False
) -> Pending:
    """x w as a pending value; both have two dimensions or more."""
    left = turned(b.read(x), x_transposed)
    w = b.widened.get(w.name, w)
    if b.is_constant(w) and len(b.shape(w)) == 2 and math.prod(shape) > 0:
        return by_weights(b, shape, left, w, b.shape(w), w_transposed)
    return product_of_tensors(b, shape, left, turned(b.read(w), w_transposed))


def by_weights(b: Lowering, shape: Ints, left: Tensor, w: ValueView, stored: Ints, transposed: bool) -> Pending:
    """A product with packed weights: all dimensions before the last one are rows."""
    k, n = stored[::-1] if transposed else stored
    m = math.prod(shape[:-1])
    rows = _rows(b, left, m, k)
    vectors = _across(b, n, left.element)
    strides = (0, k, 1) if transposed else (0, 1, n)
    element = left.element
    few = narrow.suits(b.target, n, k, element)
    held = "float32" if few or element != "float32" else halves.held_as(b, w)
    form = ("panels", vectors, transposed, *(() if held == "float32" else (held,)))
    packed = (
        narrow.packed(b, w, k, n, transposed)
        if few
        else packed_panels(
            b, w, form, (1, n, k), strides, vectors * b.target.lanes, element=element if held == "float32" else held
        )
    )
    tile = varying_tile(b.target, m, n, vectors, b.prepared.varies, element)

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        out = target.reshaped((m, n))
        assert out is not None
        found = [(kind, _operand(kind, leaf, shape, m, n)) for kind, leaf in operands]
        matrices = Matrix(rows.ref, rows.strides[0]), Matrix(packed.ref, 0), Matrix(out.ref, out.strides[0])
        if few:
            narrow.narrow_product(b, (m, n, k), (1, 1), *matrices, expr, found)
        else:
            product(b, (m, n, k), (1, 1), *matrices, tile, expr, found, element=element, held=held)

    def even(tensor: Tensor) -> bool:
        return tensor.reshaped((m, n)) is not None

    return pending_product(b, shape, len(shape) - 1, tuple(range(len(shape))), emit, even, element)


def _across(b: Lowering, n: int, element: str) -> int:
    """Vectors of a panel: with few registers two, for tall tiles, which read the right operand as seldom as can be."""
    target = wide_target(b.target, element)
    if element == "float64" and target.registers < 16:
        return 1
    return 2 if target.registers <= 16 and n >= 2 * target.lanes else panel_vectors(target, n)


def _rows(b: Lowering, left: Tensor, m: int, k: int) -> Tensor:
    """The tensor as an m x k matrix with contiguous rows."""
    view = left.reshaped((m, k)) if left.strides[-1] == 1 or k == 1 else None
    if view is None:
        view = b.copied(left, range(len(left.shape))).reshaped((m, k))
    assert view is not None
    return view


def _operand(kind: str, leaf: Tensor, shape: Ints, m: int, n: int) -> Matrix:
    if kind != "full":
        return Matrix(leaf.ref, 0)
    view = leaf.broadcast(shape).reshaped((m, n))
    assert view is not None
    return Matrix(view.ref, view.strides[0])


def product_of_tensors(b: Lowering, shape: Ints, left: Tensor, right: Tensor) -> Pending:
    """A product of two computed operands: rows of either may lie anywhere, batches are described by two strides."""
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    batch = shape[:-2]
    if len(right.shape) == 2 and batch:  # one right operand for all: batches of the left one are rows
        m, batch = math.prod(shape[:-1]), ()
    element = left.element
    few = m >= narrow.ENOUGH and narrow.suits(b.target, n, k, element)
    tile = varying_tile(b.target, greatest(m, 1), n, _across(b, n, element), b.prepared.varies, element)
    apart = m >= TALL and right.itemsize * right.strides[-2] >= APART
    packs = right.strides[-1] != 1 or apart or (tile.masked and not b.target.masks)
    if not packs and not tile.masked:
        wide = WIDE * 4 // right.itemsize if m == 1 else tile.vectors
        tile = replace(tile, vectors=min(wide, n // b.target.lanes))

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        a = _rows(b, left, m, k) if not batch else _batched(b, left.broadcast((*batch, m, k)), batch, inner=True)
        if packs or few:
            w = narrow.turned(b, right) if few else pack(b, right, tile.width(b.target))
            w = _batched(b, w.broadcast((*batch, 1, w.shape[-1])), batch, inner=False)
        else:
            w = _batched(b, right.broadcast((*batch, k, n)), batch, inner=True)
        found = [
            (
                kind,
                _matrix(_folded(leaf.broadcast(shape), batch, m, n), batch)
                if kind == "full"
                else Matrix(leaf.ref, leaf.broadcast(shape).strides[-2] if kind == "row" else 0),
            )
            for kind, leaf in operands
        ]
        matrices = _matrix(a, batch), _matrix(w, batch), _matrix(_folded(target, batch, m, n), batch)
        if few:
            narrow.narrow_product(b, (m, n, k), _two(batch), *matrices, expr, found)
            return
        steps = (4, k % 4 != 0)
        product(b, (m, n, k), _two(batch), *matrices, tile, expr, found, direct=not packs, steps=steps, element=element)

    def even(tensor: Tensor) -> bool:
        return _batch_strides(tensor, batch) is not None if batch else tensor.reshaped((m, n)) is not None

    whole = m == shape[-2]  # rows of one matrix
    return pending_product(b, shape, len(shape) - 1, tuple(range(len(shape))), emit, even, element, whole)


def _folded(tensor: Tensor, batch: Ints, m: int, n: int) -> Tensor:
    """The tensor with rows and batches as the product has them."""
    view = tensor if len(tensor.shape) == len(batch) + 2 else tensor.reshaped((m, n))
    assert view is not None
    return view


def _two(batch: Ints) -> tuple[int, int]:
    """Batch dimensions as two; only ones that merge reach this."""
    *outer, inner = (1, *batch)
    return math.prod(outer), inner


def _batch_strides(tensor: Tensor, batch: Ints) -> tuple[int, int] | None:
    """Strides of the batch as (all but the last dimension merged, the last); None where they do not merge."""
    if not batch:
        return 0, 0
    strides = tensor.strides[: len(batch)]
    outer = [(n, s) for n, s in zip(batch[:-1], strides[:-1], strict=True) if n != 1]
    for (_, s), (n2, s2) in itertools.pairwise(outer):
        if s != n2 * s2:
            return None
    return (outer[-1][1] if outer else 0), strides[-1]


def _matrix(tensor: Tensor, batch: Ints) -> Matrix:
    strides = _batch_strides(tensor, batch)
    assert strides is not None
    return Matrix(tensor.ref, tensor.strides[-2], strides)


def _batched(b: Lowering, tensor: Tensor, batch: Ints, inner: bool) -> Tensor:
    """The tensor with batches that two strides describe and, with ``inner``, contiguous rows: itself or a copy."""
    fine = _batch_strides(tensor, batch) is not None and (not inner or tensor.strides[-1] == 1 or tensor.shape[-1] == 1)
    return tensor if fine else b.copied(tensor, range(len(tensor.shape)))


def pack(b: Lowering, right: Tensor, width: int) -> Tensor:
    """Panels of a computed right operand [batch..., k, n], as [batch..., 1, panels * k * width]: the last panel
    overlaps the one before it; one narrower than ``width`` is not filled up."""
    *lead, k, n = right.shape
    size, whole, wide = k * width, n // width, min(width, n)
    count = max(1, -(-n // width))
    packed = b.scratch((*lead, 1, count * size), element=right.element)
    *outer, depth, column = right.strides

    def part(first: int, panels: int, at: int) -> None:
        shape = (*lead, panels, k, wide)
        source = right.shift(first * column)
        lies = source.viewed(shape, (*outer, width * column, depth, column))
        to = packed.shift(at * size).viewed(shape, (*packed.strides[: len(lead)], size, width, 1))
        copy(b.program, b.target, lies, to)

    if whole:
        part(0, whole, 0)
    if whole < count:
        part(max(0, n - width), 1, whole)
    return packed
