"""Calling the kernel for products of few columns: when it serves, and the right operand as it reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.sizes import portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.narrow import Narrow
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.products import Matrix
from onnxplug_ep_cpu.codegen.program import Program, Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor

MOST_ROWS = 8
DEEP = 4
"""Vectors along k from which on adding up their lanes costs less than lanes without a column do."""
ENOUGH = 8
"""Rows for which a computed right operand is turned."""
ITEM = 1 << 15
"""Products of vectors in one item."""


def suits(target: Target, n: int, k: int, element: str) -> bool:
    """Whether a quarter of a vector's lanes or more would have no column."""
    return element == "float32" and 0 < n <= target.lanes * 3 // 4 and k >= DEEP * target.lanes


def packed(b: Lowering, w: ValueView, k: int, n: int, transposed: bool) -> Tensor:
    """A constant right operand, [k, n] or, ``transposed``, [n, k]."""

    def fill(source: Tensor, result: Tensor) -> None:
        row, column = source.strides[::-1] if transposed else source.strides
        _turn(b.packing, b.target, source.viewed((k, n), (row, column)), result)

    return in_form(b, w, ("narrow", transposed), (_size(b, k, n),), fill)


def turned(b: Lowering, right: Tensor) -> Tensor:
    """A computed right operand [batch..., k, n] as [batch..., 1, size]."""
    *lead, k, n = right.shape
    made = b.scratch((*lead, 1, _size(b, k, n)))
    lanes = b.target.lanes
    if k % lanes:
        last = made.shift(k // lanes * n * lanes).viewed((*lead, n * lanes), (*made.strides[: len(lead)], 1))
        write_map(b.program, b.target, ex.IDENTITY, [b.tensor_of(np.zeros(1, np.float32))], last)
    _turn(b.program, b.target, right, made)
    return made


def _size(b: Lowering, k: int, n: int) -> int:
    return -(-k // b.target.lanes) * b.target.lanes * n


def _turn(program: Program, target: Target, right: Tensor, made: Tensor) -> None:
    """Write [batch..., k, n] as [batch...][vector of k][n][lane]; what k leaves of the last vector has been filled."""
    *lead, k, n = right.shape
    *outer, row, column = right.strides
    lanes, steps = target.lanes, made.strides[: len(lead)]
    whole, rest = divmod(k, lanes)
    if whole:
        lies = right.viewed((*lead, whole, n, lanes), (*outer, lanes * row, column, row))
        copy(program, target, lies, made.viewed(lies.shape, (*steps, n * lanes, lanes, 1)))
    if rest:
        lies = right.shift(whole * lanes * row).viewed((*lead, n, rest), (*outer, column, row))
        copy(program, target, lies, made.shift(whole * n * lanes).viewed(lies.shape, (*steps, lanes, 1)))


def narrow_product(
    b: Lowering, sizes: tuple[int, int, int], batch: tuple[int, int], a: Matrix, weights: Matrix, c: Matrix, expr: ex.Expr,
    operands: Sequence[tuple[str, Matrix]],
) -> None:  # fmt: skip
    """Append the call; arguments are those of ``products.product``."""
    m, n, k = sizes
    lanes = b.target.lanes
    rows = max(1, min(MOST_ROWS, (b.target.registers * 3 // 4) // n))
    if m < rows:
        rows = 1 if b.prepared.varies else max(1, m)  # a kernel for every number of rows would be compiled for each
    vectors = -(-k // lanes)
    block = portion(-(-m // (4 * b.threads)), ITEM // (n * vectors))
    block = -(-block // rows) * rows
    blocks = -(-m // block)
    args: list[int | Ref] = [
        a.ref, weights.ref, c.ref, m, k, 4 * a.row, 4 * c.row, block, blocks, batch[1],
        *(4 * stride for matrix in (a, weights, c) for stride in matrix.batch),
    ]  # fmt: skip
    for _, operand in operands:
        args += [operand.ref, *(4 * stride for stride in (operand.row, *operand.batch))]
    kernel = Narrow(rows, n, k % lanes != 0, expr, tuple(kind for kind, _ in operands))
    entries = math.prod(batch)
    b.program.call(kernel, args, blocks * entries, entries * m * n * (0.6 * vectors + 3), even=False)
