"""Calling the matrix product kernel: tile choice, panels of weights, batches, the pending value of a product."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.gemm import Gemm
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.tile_rows import ANY, parts, rests
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.fitting import fitting
from onnxplug_ep_cpu.codegen.lower.pending import DoubleAnchor, Pending
from onnxplug_ep_cpu.codegen.program import Ref, grab_of
from onnxplug_ep_cpu.codegen.sizes import computed, greatest, least, portion, remembered
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

FEW_TILES = 4
"""Down to so many tiles of rows, a last one of fewer rows is worth code of its own."""


@record(frozen=True, slots=True)
class Tile:
    """``rows`` x ``vectors`` registers; ``masked``: narrower than one vector."""

    rows: int
    vectors: int
    masked: bool = False
    varies: bool = False
    """Its kernel serves many numbers of rows: it is told how much to bring near, and rows that are not found by a table may be
    any behind whole tiles (see ``Gemm``)."""
    last: int = 0
    lapped: bool = False

    def width(self, target: Target) -> int:
        return self.vectors * target.lanes


MOST_ROWS = 10
"""More rows need more addresses than a processor has registers for, and LLVM then keeps sums in memory."""


@remembered
def panel_vectors(target: Target, n: int) -> int:
    """Vectors across a panel for ``n`` columns, whatever the number of rows, so that weights are packed once."""
    most = 2 if target.registers <= 16 else 4 if n >= 4 * target.lanes else 2
    candidates = [v for v in (2, 3, 1, 4) if v <= max(most, 3) and v * target.lanes <= max(n, target.lanes)]
    return min(candidates, key=lambda v: (-(-n // (v * target.lanes)) * panel_time(v), abs(v - 2)))


def panel_time(vectors: int) -> float:
    """How long a panel takes, in vectors whose products alone count."""
    return vectors + (0.9 if vectors == 1 else 0.2)


@remembered
def deep_vectors(target: Target, n: int, depth: int) -> int:
    """``panel_vectors`` of products whose ``depth`` is not done in steps: widest panels that crowd the second-level cache are halved."""
    vectors = panel_vectors(target, n)
    return 2 if vectors == 4 and 4 * depth * vectors * target.lanes > target.l2 // 4 else vectors


@remembered
def split(target: Target, n: int, depth: int) -> tuple[int, int, bool]:
    """Panels for ``n`` columns where the last may be narrower: vectors of a panel, of the last one if it has fewer, and whether those
    of a single one overlap. Products whose ``depth`` is done in steps have panels of one width."""
    lanes, whole, wide = target.lanes, -(-n // target.lanes), deep_vectors(target, n, depth)
    if n < lanes or 4 * depth * wide * lanes > target.l2 // 4:
        return wide, 0, False
    most = 3 if target.registers <= 16 else 4 if wide == panel_vectors(target, n) else wide

    def time(vectors: int) -> float:
        full, rest = divmod(whole, vectors)
        each = full * panel_time(vectors) + (panel_time(rest) if rest else 0)
        return each if vectors == wide else 1.05 * each  # as panels of one width would be, unless much is gained

    vectors = min(range(1, min(most, whole) + 1), key=time)
    return vectors, whole % vectors if whole > vectors else 0, whole == vectors and n < whole * lanes


def wide_target(target: Target, element: str) -> Target:
    """What tiles are chosen by: vectors of float64 are two registers."""
    return replace(target, registers=target.registers // 2) if element == "float64" else target


def most_rows(target: Target, wide: int) -> int:
    """Rows of a tile whose sums fill the registers."""
    return min(max(1, (target.registers - 1 - wide) // wide), MOST_ROWS)


def tile_time(rows: int, wide: int) -> float:
    """Cycles for a step of k."""
    sums = rows * wide
    waits = 4 / max(1, 8 // sums)  # the latency of a product, over the chains of sums that hide it
    return max(sums / 2, (rows + wide) / 2, wide, waits) + 0.15


WORTH = 1.05
"""By how many times faster tiles have to be for which there is another kernel."""


def best_rows(most: int, m: int, varies: bool, time: Callable[[int], float]) -> int:
    """The rows, ``most`` at most, of the tiles of a product of m rows that take the least ``time``. Where m ``varies`` there are two
    heights, so that few kernels serve all products, and one for each m that is smaller."""
    if not varies:
        return min(range(1, min(most, m) + 1), key=lambda rows: (time(rows), -rows))
    lower = most * 2 // 3 + 1
    if m < most:
        return min(lower, m)
    return lower if time(lower) * WORTH < time(most) else most


@remembered
def choose_tile(target: Target, m: int, n: int, vectors: int = 0, whole: bool = False, varies: bool = False) -> Tile:
    """The tile with the least time for an m x n result: registers filled, little of it computed twice. With ``vectors``
    the panels are that wide, and a last tile may have fewer rows (see ``product``), unless all are to be ``whole``.
    ``varies``: see ``best_rows``."""
    wide = vectors or panel_vectors(target, n)

    def time(rows: int) -> float:
        if vectors and not whole and m % rows:
            return m // rows * tile_time(rows, wide) + tile_time(m % rows, wide)
        return math.ceil(m / rows) * tile_time(rows, wide)

    rows = best_rows(most_rows(target, wide), m, varies, time)
    return Tile(rows, wide, n < target.lanes, varies)


def varying_tile(
    target: Target, m: int, n: int, vectors: int, varies: bool, element: str = "float32", whole: bool = False
) -> Tile:
    """``choose_tile`` for products whose number of rows, if it ``varies``, is another in other runs: they get one tile, with ``ANY``
    rest, so that the kernel serves all numbers of rows but one."""
    target = wide_target(target, element)
    most = most_rows(target, vectors)
    if not varies or most < 3 or m == 1:
        return choose_tile(target, m, n, vectors, whole)
    return Tile(most, vectors, n < target.lanes, True)


SPARED = 2
"""Whole tiles at most whose rows are better divided among those of the rest."""


@functools.cache
def _spared(rows: int, vectors: int, rest: int, most: int) -> int:
    """How many tiles of ``rows`` rows before a rest, ``most`` at most, had better be part of it."""

    def time(spared: int) -> float:
        tiles = parts(spared * rows + rest, rows)
        if min(tiles) < min(rests(rows)):
            return math.inf
        return sum(tile_time(part, vectors) for part in tiles) - spared * tile_time(rows, vectors)

    return min(range(most + 1), key=lambda spared: round(time(spared), 6)) if rest else 0


@functools.cache
def full_tiles(rows: int, vectors: int) -> Callable[[int, int], int]:
    """(rows of a product, 0) -> its tiles of ``rows`` rows where the rest may be any."""

    def count(m: int, _: int) -> int:
        full, rest = divmod(m, rows)
        return full - _spared(rows, vectors, rest, min(full, SPARED))

    return count


def unrolled(depth: int) -> tuple[int, bool]:
    """Steps of k in one turn of the loop, and whether single steps remain."""
    for steps in (4, 8, 7, 6, 5, 3):
        if depth % steps == 0:
            return steps, False
    return (4, True) if depth > 4 else (1, False)


@record(frozen=True, slots=True)
class Matrix:
    """One operand of a batched product: address, row stride and the strides of up to two batch dimensions, in
    elements."""

    ref: Ref
    row: int
    batch: tuple[int, int] = (0, 0)


@record(frozen=True, slots=True)
class Gather:
    """A table of row starts: taps, the table, a row of zeros, and the floats that a row reads beyond those its neighbours do."""

    taps: int
    table: Ref
    zeros: Ref | int
    fresh: int


def product(
    b: Lowering,
    sizes: tuple[int, int, int],
    batch: tuple[int, int],
    a: Matrix,
    weights: Matrix,
    c: Matrix,
    tile: Tile,
    expr: ex.Expr,
    operands: Sequence[tuple[str, Matrix]],
    direct: bool = False,
    gather: Gather | None = None,
    steps: tuple[int, bool] | None = None,
    grouped: bool = False,
    element: str = "float32",
) -> None:
    """Append the call. ``sizes`` are m, n and k (with a table: floats per tap); panels are ``weights`` with the stride
    of one batch entry, or with ``direct`` a row-major matrix. ``steps`` are those of k in one turn of the loop, and
    whether single ones remain (default: what suits k). ``grouped``: see ``Gemm``."""
    m, n, k = sizes
    width, unit = tile.width(b.target), SIZES[element]
    depth = k * (gather.taps if gather else 1)
    count = 1 if tile.masked else -(-n // width)
    tiles, rest = -(-m // tile.rows), 0
    if tile.varies and not gather:
        tiles, rest = computed(full_tiles(tile.rows, tile.vectors), m, 0), ANY
    elif not gather and not tile.masked and tiles > 1 and (tiles <= FEW_TILES or (tiles * tile.rows - m) * 50 > m):
        tiles, rest = divmod(m, tile.rows)
    left = m - tiles * tile.rows if rest == ANY else rest
    step = k if gather or direct or tile.masked or m <= tile.rows else _depth(b, k, unit * width)
    turn, tail = steps or unrolled(step)
    if step < k:
        tail = tail or k % step % turn != 0
    kernel = Gemm(
        tile.rows,
        tile.vectors,
        turn,
        tail,
        expr,
        tuple(kind for kind, _ in operands),
        gather is not None,
        direct,
        tile.masked,
        step < k,
        rest,
        grouped,
        tile.last,
        tile.lapped,
        element=element,
    )
    together = batch[1] if grouped else 1
    reach = min(depth, gather.fresh) if gather else step
    block = _rows_per_item(b, tiles, unit * tile.rows, reach * together, count * math.prod(batch))
    passes = greatest(1, least(tiles, block) + least(left, 1))  # over a panel; each brings a part of the next one near
    near = greatest(1, turn * width * unit // 64 // passes)
    kernel = replace(kernel, near=ANY if tile.varies else near)
    blocks = greatest(1, -(-tiles // block))
    args: list[int | Ref] = [
        a.ref, weights.ref, c.ref, m, n, k, unit * a.row, unit * weights.row, unit * c.row, block, blocks, count, batch[1],
        *(unit * stride for matrix in (a, weights, c) for stride in matrix.batch),
    ]  # fmt: skip
    args += [gather.table, gather.taps, gather.zeros] if gather else [0, 0, 0]
    items = blocks * count * math.prod(batch)
    if step < k:
        chunk = portion(items // (b.threads * 4), least(6, count))
        items = blocks * -(-count // chunk) * math.prod(batch)
        slot = unit * chunk * (block * tile.rows + left) * width
        grab = grab_of(items, b.threads)
        args += [chunk, step, b.scratch((-(-items // grab) * slot // 4,)).ref, slot, grab]
    else:
        args += [0, 0, 0, 0, 0]
    args += [tiles if rest == ANY else 0, near if tile.varies else 0]
    for _, operand in operands:
        args += [operand.ref, *(unit * stride for stride in (operand.row, *operand.batch))]
    flops = 2.0 * math.prod(batch) * m * n * depth
    work = unit / 4 * flops / (6 * b.target.lanes) + unit * n * depth / 20
    b.program.call(kernel, args, items, work, even=step < k)


def _depth(b: Lowering, k: int, line: int) -> int:
    """The k of one step: its part of a panel takes three quarters of the first-level cache, ``line`` bytes each; all of k where panels stay
    in the second-level cache, since the next one is on its way while one is used."""
    fitting = b.target.l1 * 3 // 4 // line
    if line * k <= b.target.l2 // 4:
        return k
    return -(-k // (-(-k // fitting)) // 8) * 8


def _rows_per_item(b: Lowering, tiles: int, column: int, depth: int, others: int) -> int:
    """Row tiles of one item: their rows of A, ``column`` bytes for each step of k, stay in half of the second-level cache while
    panels pass, and there are items enough to share out."""
    fitting = max(1, (b.target.l2 // 2) // (max(1, depth) * column))
    wanted = greatest(4, tiles * others // (8 if b.threads == 1 else b.threads * 16))
    return portion(least(tiles, fitting), wanted)


def column_kind(shape: Ints, channel: int, element: str = "float32") -> Callable[[Tensor], str | None]:
    """How a product with result ``shape``, its columns along dimension ``channel``, reads an operand: "column", "full",
    "row", "scalar" or not at all (None). Operands are of type ``element`` and broadcast to the result."""

    def kind(leaf: Tensor) -> str | None:
        if leaf.element != element or len(leaf.shape) > len(shape):
            return None
        if leaf.size == 1:
            return "scalar"
        view = leaf.broadcast(shape)
        moving = [d for d, n in enumerate(shape) if n != 1 and view.strides[d] != 0]
        if moving == [channel] and view.strides[channel] == 1:
            return "column"
        if len(moving) == sum(n != 1 for n in shape) and (view.strides[channel] == 1 or shape[channel] == 1):
            return "full"
        return None

    return kind


def pending_product(
    b: Lowering,
    shape: Ints,
    channel: int,
    order: Ints,
    emit: Callable[[ex.Expr, list[tuple[str, Tensor]], Tensor], None],
    fits: Callable[[Tensor], bool] = lambda tensor: True,
    element: str = "float32",
) -> Pending:
    """The result of a product as a pending value; ``emit`` gets the expression, its operands with their kinds, and the
    target. ``fits``: whether it can write to a tensor of ``shape``, or read it, where that lies; rows may be unevenly spaced in a part
    of a concatenation, or of something that is sliced."""
    kind_of = column_kind(shape, channel, element)

    def takes(leaf: Tensor) -> bool:
        kind = kind_of(leaf)
        if kind != "full":
            return kind is not None
        view = leaf.broadcast(shape)
        return fits(view) and all(
            n == 1 or m == 1 or (view.strides[i] > view.strides[j]) == (order.index(i) < order.index(j))
            for i, n in enumerate(shape) for j, m in enumerate(shape) if i != j
        )  # fmt: skip

    def anchor(expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        with fitting(b, target, order, fits) as written:
            emit(expr, [(kind_of(leaf) or "", leaf) for leaf in leaves], written)

    made = DoubleAnchor(anchor) if element == "float64" else anchor
    return Pending(shape, ex.IDENTITY, [None], made, takes, order, element)
