"""Calling the integer product kernel: int16 operands, packed weights, the pending value of an integer product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.qgemm import QGemm
from onnxplug_ep_cpu.codegen.kernels.quantize import Widen
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.fitting import fitting
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import column_kind
from onnxplug_ep_cpu.codegen.lower.products import Gather, Matrix, unrolled
from onnxplug_ep_cpu.codegen.lower.tiles import best_rows
from onnxplug_ep_cpu.codegen.program import Buffer, Ref
from onnxplug_ep_cpu.codegen.recipes import remembered
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

EIGHT_BITS = frozenset({"uint8", "int8"})
SIXTEEN_BITS = frozenset({"uint16", "int16"})
OPERANDS = frozenset({"float32", "int32", "uint8", "int8", "int16", "uint16"})
"""Element types that the end of an integer product reads."""
LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
WIDEN_BLOCK = 16384


@record(slots=True, eq=False)
class IntegerAnchor:
    """Makes the calls of an integer product once its end is known; writes any element type of ``OPERANDS``. Ends of other types read
    the sums."""

    b: Lowering
    order: Ints
    kind_of: Callable[[Tensor], str | None]
    emit: Callable[[ex.Expr, list[tuple[str, Tensor]], Tensor], None]
    fits: Callable[[Tensor], bool]
    elements: ClassVar[frozenset[str]] = OPERANDS
    made: ClassVar[str] = "int32"

    def __call__(self, expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        with fitting(self.b, target, self.order, self.fits) as written:
            self.emit(expr, [(self.kind_of(leaf) or "", leaf) for leaf in leaves], written)


def pending_integer(
    b: Lowering, shape: Ints, channel: int, order: Ints, emit: Callable[[ex.Expr, list[tuple[str, Tensor]], Tensor], None],
    fits: Callable[[Tensor], bool],
) -> Pending:  # fmt: skip
    """The int32 result of an integer product as a pending value; see ``pending_products.pending_product``."""
    float_kind = column_kind(shape, channel)

    def kind_of(leaf: Tensor) -> str | None:
        return float_kind(replace(leaf, element="float32")) if leaf.element in OPERANDS else None

    def takes(leaf: Tensor) -> bool:
        kind = kind_of(leaf)
        if kind != "full":
            return kind is not None
        view = leaf.broadcast(shape)
        moving = [d for d in order if shape[d] != 1]
        return fits(view) and all(view.strides[i] >= view.strides[j] for i, j in itertools.pairwise(moving))

    return Pending(shape, ex.IDENTITY, [None], IntegerAnchor(b, order, kind_of, emit, fits), takes, order, "int32")


# ---- operands


def widened(b: Lowering, tensor: Tensor, zero: Tensor) -> Tensor:
    """An 8-bit tensor without gaps as int16 less its zero point, laid out alike; what is int16 already has been widened."""
    if tensor.element == "int16":
        return tensor
    key = ("widened", tensor.buffer, tensor.offset, tensor.shape, tensor.strides, zero.buffer, zero.offset)
    if key not in b.made:
        # The last pair of an odd row reaches two bytes beyond it.
        buffer = Buffer("scratch", 2 * max(1, tensor.size) + 64)
        made = Tensor(buffer, tensor.shape, tensor.strides, element="int16")
        args: list[int | Ref] = [made.ref, tensor.ref, zero.ref, tensor.size, WIDEN_BLOCK]
        b.program.call(Widen(tensor.element), args, -(-tensor.size // WIDEN_BLOCK), tensor.size / (4 * b.target.lanes))
        b.made[key] = made
    return b.made[key]


def remaining_zero(tensor: Tensor, zero: Tensor) -> int:
    """The constant zero point that is yet to be taken from a tensor: none from int16."""
    if tensor.element == "int16":
        return 0
    assert zero.buffer.array is not None
    return int(zero.buffer.array.reshape(-1)[0])


def scalar(b: Lowering, value: ValueView | None, default: str) -> Tensor:
    """A zero point as a tensor of one element; zero where it is left out."""
    if value is None:
        return b.tensor_of(np.zeros(1, default))
    return b.read(value)


@record(frozen=True, slots=True)
class Weights:
    """Packed weights: ``step`` bytes from group to group; ``pairs`` of k in each of ``taps``."""

    tensor: Tensor
    step: int
    taps: int
    pairs: int
    vectors: int


def pack(
    b: Lowering,
    value: ValueView,
    form: object,
    taken: Callable[[np.ndarray], np.ndarray],
    zero: np.ndarray | None,
    n: int,
) -> Weights:
    """A constant as kernels read it. ``taken`` gives it as [group, tap, k, column]; ``zero`` points are one, or one a column."""
    vectors = tile_vectors(b.target, n)
    packed = b.prepared.packed(
        value,
        ("integer", form, vectors, written(zero)),
        lambda array: packed_pairs(taken(array), zero, vectors * b.target.lanes),
    )
    groups, _, taps, pairs = packed.shape[:4]
    return Weights(b.tensor_of(packed), packed.nbytes // groups, taps, pairs, vectors)


def written(zero: np.ndarray | None) -> bytes | None:
    """Zero points, to tell apart what is packed less them: equal weights of several nodes may be one constant."""
    return None if zero is None else zero.tobytes()


def packed_pairs(array: np.ndarray, zero: np.ndarray | None, width: int) -> np.ndarray:
    """[group, tap, k, column] 8-bit weights as [group][panel][tap][pair][column][2] less their zero points, int8 where that
    holds them; panels overlap as in ``packing.packed_panels``."""
    if zero is not None and np.any(zero):
        by_column = (
            zero.astype(np.int16).reshape(-1) if zero.size == 1 else zero.astype(np.int16).reshape(len(array), 1, 1, -1)
        )
        array = array.astype(np.int16) - by_column
    if array.dtype != np.int8 and array.size and (array.min() < -128 or array.max() > 127):
        array = array.astype(np.int16)
    else:
        array = array.astype(np.int8, copy=False)
    groups, taps, k, n = array.shape
    count = max(1, -(-n // width))
    first = np.minimum(np.arange(count) * width, max(0, n - width))
    padded = np.pad(array, ((0, 0), (0, 0), (0, k % 2), (0, max(0, width - n))))
    chosen = padded[..., first[:, None] + np.arange(width)]
    return np.ascontiguousarray(chosen.reshape(groups, taps, (k + 1) // 2, 2, count, width).transpose(0, 4, 1, 2, 5, 3))


# ---- the call


def tile_vectors(target: Target, n: int) -> int:
    """Vectors across a panel for ``n`` columns."""
    most = 2 if target.registers == 16 else 4
    fitting = [v for v in (1, 2, 4) if v <= most and (v == 1 or v * target.lanes <= n)]
    return min(fitting, key=lambda v: (-(-n // (v * target.lanes)) * (v + 0.5), -v))


@remembered
def tile_rows(target: Target, m: int, vectors: int, varies: bool) -> int:
    """Rows of a tile: registers filled, little of the result computed twice. ``varies``: see ``best_rows``."""
    most = max(1, (target.registers - 2 - vectors) // vectors)
    return best_rows(min(most, 8), m, varies, lambda r: math.ceil(m / r) * (r * vectors + vectors + r / 2))


def integer_product(
    b: Lowering,
    sizes: tuple[int, int],
    batch: tuple[int, int],
    a: Matrix,
    weights: Weights,
    c: Matrix,
    result: str,
    expr: ex.Expr,
    operands: Sequence[tuple[str, Tensor, Matrix]],
    bias: Tensor,
    rows: int,
    gather: Gather | None = None,
) -> None:
    """Append the call. ``sizes`` are m and n; ``batch`` images and groups; ``bias`` int32 for every column of every group."""
    m, n = sizes
    # Sums of more than two steps would be added up in another order, which takes more registers than there are.
    steps, tail = unrolled(weights.pairs) if rows * weights.vectors <= 4 else (2 - weights.pairs % 2, False)
    masked = n < b.target.lanes
    element = weights.tensor.element
    kernel = QGemm(
        rows, weights.vectors, min(steps, 4), tail or steps > 4, expr, tuple((kind, t.element) for kind, t, _ in operands),
        result, element, gather is not None, masked,
    )  # fmt: skip
    width = weights.vectors * b.target.lanes
    count = -(-n // width)
    depth = 2 * weights.pairs * weights.taps
    tiles = -(-m // rows)
    wanted = max(4, tiles * count * math.prod(batch) // (b.threads * 8))
    block = max(1, min(tiles, (b.target.l2 // 2) // (2 * depth * rows) or 1, wanted))
    blocks = -(-tiles // block)
    unit = SIZES[result]
    args: list[int | Ref] = [
        a.ref, weights.tensor.ref, c.ref, m, n, weights.pairs, 2 * a.row, unit * c.row, block, blocks, count, batch[1],
        2 * a.batch[0], 2 * a.batch[1], weights.step, unit * c.batch[0], unit * c.batch[1],
    ]  # fmt: skip
    args += [gather.table, weights.taps, gather.zeros] if gather else [0, 1, 0]
    args += [bias.ref, 4 * n]
    for _, leaf, operand in operands:
        size = leaf.itemsize
        args += [operand.ref, size * operand.row, size * operand.batch[0], size * operand.batch[1]]
    work = math.prod(batch) * (m * n * depth / (9.0 * b.target.lanes) + n * depth / 20)
    b.program.call(kernel, args, blocks * count * math.prod(batch), work)


def saturated(build: ex.Build, value: int, zero: int, element: str, wide: bool) -> int:
    """round(value) + zero point within the element's limits; ``wide``: less the zero point."""
    low, high = LIMITS[element]
    limits = build("const", float(low - zero)), build("const", float(high - zero))
    return build("quantize", value, *limits, build("int32", 0 if wide else zero))
