"""Calling the matrix product kernel: its operands, batches, and what one item does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from onnxplug.contract.records import record
from onnxplug.contract.sizes import computed, greatest, least, portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.gemm import Gemm
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.tile import FEW
from onnxplug_ep_cpu.codegen.kernels.tile_rows import ANY
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.tiles import FEW_TILES, Tile, full_tiles
from onnxplug_ep_cpu.codegen.program import Ref, grab_of


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
    held: str = "float32",
) -> None:
    """Append the call. ``sizes`` are m, n and k (with a table: floats per tap); panels are ``weights`` with the stride
    of one batch entry, or with ``direct`` a row-major matrix. ``steps`` are those of k in one turn of the loop, and
    whether single ones remain (default: what suits k). ``grouped``: see ``Gemm``. ``held``: what panels of one matrix hold, if not
    ``element``."""
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
    single = gather or direct or tile.masked or m <= tile.rows
    step = k if single else _depth(b, k, unit * width)
    blocked, lies = step < k or (held != "float32" and not single), unit if held == "float32" else SIZES[held]
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
        blocked,
        rest,
        grouped,
        tile.last,
        tile.lapped,
        element=element,
        weights=held,
    )
    together = batch[1] if grouped else 1
    reach = min(depth, gather.fresh) if gather else step
    block = _rows_per_item(b, tiles, unit * tile.rows, reach * together, count * math.prod(batch))
    passes = greatest(1, least(tiles, block) + least(left, 1))  # over a panel; each brings a part of the next one near
    near = computed(_lines_near, turn * width * lies // 64, passes)
    told = tile.varies or b.prepared.varies  # it differs with the number of images too
    kernel = replace(kernel, near=ANY if told else near)
    blocks = greatest(1, -(-tiles // block))
    args: list[int | Ref] = [
        a.ref, weights.ref, c.ref, m, n, k, unit * a.row, unit * weights.row, unit * c.row, block, blocks, count, batch[1],
        *(unit * stride for matrix in (a, weights, c) for stride in matrix.batch),
    ]  # fmt: skip
    args += [gather.table, gather.taps, gather.zeros] if gather else [0, 0, 0]
    items = blocks * count * math.prod(batch)
    if blocked:
        chunk = portion(items // (b.threads * 4), least(6, count))
        items = blocks * -(-count // chunk) * math.prod(batch)
        slot = unit * (chunk * (block * tile.rows + left) + (step if held != "float32" else 0)) * width
        grab = grab_of(items, b.threads)
        args += [chunk, step, b.scratch((-(-items // grab) * slot // 4,)).ref, slot, grab]
    else:
        args += [0, 0, 0, 0, 0]
    args += [tiles if rest == ANY else 0, near if told else 0]
    for _, operand in operands:
        args += [operand.ref, *(unit * stride for stride in (operand.row, *operand.batch))]
    flops = 2.0 * math.prod(batch) * m * n * depth
    work = unit / 4 * flops / (6 * b.target.lanes) + unit * n * depth / 20
    b.program.call(kernel, args, items, work, even=blocked)


def _depth(b: Lowering, k: int, line: int) -> int:
    """The k of one step: its part of a panel takes three quarters of the first-level cache, ``line`` bytes each; all of k where panels stay
    in the second-level cache, since the next one is on its way while one is used."""
    fitting = b.target.l1 * 3 // 4 // line
    if line * k <= b.target.l2 // 4:
        return k
    return -(-k // (-(-k // fitting)) // 8) * 8


def _lines_near(lines: int, passes: int) -> int:
    """Lines of the next panel that a turn of the loop brings near, if a turn reads so many: in few passes all together bring all, in
    more they leave the rest to the processor, which then has the time to find it."""
    return -(-lines // passes) if passes <= FEW else max(1, lines // passes)


def _rows_per_item(b: Lowering, tiles: int, column: int, depth: int, others: int) -> int:
    """Row tiles of one item: their rows of A, ``column`` bytes for each step of k, stay in half of the second-level cache while
    panels pass, and there are items enough to share out."""
    fitting = max(1, (b.target.l2 // 2) // (max(1, depth) * column))
    wanted = greatest(4, tiles * others // (8 if b.threads == 1 else b.threads * 16))
    return portion(least(tiles, fitting), wanted)
