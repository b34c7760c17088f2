"""Element-wise loops and copies over tensors of any strides: choosing the loops, then calling the kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract.sizes import least, portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.bytemap import ByteMap
from onnxplug_ep_cpu.codegen.kernels.interleave import Interleave, Reordered, Strided
from onnxplug_ep_cpu.codegen.kernels.map import Map
from onnxplug_ep_cpu.codegen.kernels.nonzero import Nonzero
from onnxplug_ep_cpu.codegen.kernels.transpose import Transpose
from onnxplug_ep_cpu.codegen.lower.memory import scratch, tensor_of
from onnxplug_ep_cpu.codegen.lower.picking import pick, suits
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Program, Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor

BLOCK = 4096
"""Elements of one item of an element-wise loop."""
TILED = 8
"""Vectors' worth of short rows that are made one."""
MOST_CHANNELS = 15
"""Elements of a pixel, no more than a vector has, that vectors of them are shuffled for."""
MOST_APART = 4
"""Elements from one that is read to the next that vectors are shuffled for."""
MOST_REORDERED = 8
"""Elements of a pixel whose order vectors are shuffled for."""
MOST_COPIES = 4
"""Of a row that a kernel writes repeatedly."""
CACHE_LINE = 64
EXCLUDING = 4096
"""Bytes between lines that one set of a first-level cache holds."""
TURNED = 64
"""Lines of a matrix that are turned over their whole length before further ones are."""
TURNED_OUTER = 3
"""Dimensions outside such a matrix that the kernel has at least: copies of fewer share it, as it takes long to compile."""
BYTES = {"uint8": np.arange(256, dtype=np.uint8), "int8": np.arange(256, dtype=np.uint8).view(np.int8)}
"""Every number of an 8-bit type, in the order of their bits."""


def write_map(program: Program, target: Target, expr: ex.Expr, operands: Sequence[Tensor], result: Tensor) -> None:
    """result = expr(operands), each broadcast to the result's shape."""
    if result.size == 0:
        return
    views = [operand.broadcast(result.shape) for operand in operands]
    dims = loops([result, *views])
    if dims[-1][1] != 1:  # the result's elements are apart: rows of one
        dims.append((1,) * (2 + len(views)))
    inner = dims[-1]
    for index, stride in enumerate(inner[2:]):
        if stride not in (0, 1):  # its columns are apart: lay it out like the result
            views[index] = _like(program, target, operands[index], result)
            write_map(program, target, expr, views, result)
            return
    rows = dims[-2] if len(dims) > 1 else (1, *[0] * (1 + len(views)))
    outer = dims[:-2]
    if not outer and _tabled(program, target, expr, [result, *views], rows, inner):
        return
    if _tiled(program, target, expr, [result, *views], dims):
        return
    columns = inner[0]
    if len(dims) > 2 and rows[0] * columns < BLOCK:
        *outer, rows = _rows_last(dims[:-1])
    column_block = least(columns, BLOCK)
    row_block = portion(rows[0], BLOCK // column_block)
    column_blocks, row_blocks = -(-columns // column_block), -(-rows[0] // row_block)
    kernel = Map(
        expr,
        tuple((v.element, "v" if inner[2 + i] == 1 else "s") for i, v in enumerate(views)),
        len(outer),
        result.element,
    )
    args: list[int | Ref] = [result.ref, columns, column_block, column_blocks, rows[0], row_block, row_blocks]
    args += [d[0] for d in outer]
    args += [s * result.itemsize for s in (rows[1], *(d[1] for d in outer))]
    for i, view in enumerate(views):
        args += [view.ref, *(s * view.itemsize for s in (rows[2 + i], *(d[2 + i] for d in outer)))]
    items = column_blocks * row_blocks * math.prod(d[0] for d in outer)
    program.call(kernel, args, items, _map_time(target, expr, len(views), result.size), even=False)


def converted(program: Program, target: Target, source: Tensor, result: Tensor) -> None:
    """result = source, where the one may be of 16 bits and the other of float32."""
    if source.element == result.element:
        copy(program, target, source, result)
    else:
        write_map(program, target, ex.IDENTITY, [source], result)


def _map_time(target: Target, expr: ex.Expr, operands: int, size: int) -> float:
    return size / target.lanes * (1.0 + 0.3 * operands + 0.3 * ex.cost(expr))


def _tabled(
    program: Program,
    target: Target,
    expr: ex.Expr,
    tensors: Sequence[Tensor],
    rows: Sequence[int],
    columns: Sequence[int],
) -> bool:
    """A function of one tensor of bytes, whose results are bytes, through a table of it, which is the function of all bytes;
    or return False."""
    result, *operands = tensors
    if len(operands) != 1 or any(t.element not in BYTES for t in tensors) or columns[1:] != (1, 1):
        return False
    if columns[0] < 4 * target.lanes:
        return False
    time = result.size * (1.7 / target.lanes if target.name in ("avx2", "avx512") else 0.6) + 60
    if _map_time(target, expr, 1, result.size) < time + _map_time(target, expr, 1, 256):
        return False
    numbers = tensor_of(BYTES[operands[0].element])
    table = scratch((256,), element=result.element)
    write_map(program, target, expr, [numbers], table)
    column_block = least(columns[0], BLOCK)
    row_block = portion(rows[0], BLOCK // column_block)
    column_blocks, row_blocks = -(-columns[0] // column_block), -(-rows[0] // row_block)
    args: list[int | Ref] = [
        result.ref, operands[0].ref, table.ref, columns[0], column_block, column_blocks, rows[0], row_block, row_blocks,
        rows[1], rows[2],
    ]  # fmt: skip
    program.call(ByteMap(), args, column_blocks * row_blocks, time, even=False)
    return True


def _tiled(
    program: Program, target: Target, expr: ex.Expr, tensors: Sequence[Tensor], dims: Sequence[tuple[int, ...]]
) -> bool:
    """Where rows are shorter than vectors (the three channels of an image) and an operand is the same in each: write many rows
    as one, with the operand repeated; else return False."""
    count = TILED * target.lanes
    if len(dims) < 2 or dims[-1][0] >= 2 * target.lanes or dims[-2][0] < 2 * count:
        return False
    (rows, *steps), (columns, *units) = dims[-2:]
    same = [step == 0 and unit == 1 for step, unit in zip(steps, units, strict=True)]
    fixed = [all(d[1 + i] == 0 for d in dims[:-2]) for i in range(len(tensors))]
    if not all(step == unit * columns or (s and f) for step, unit, s, f in zip(steps, units, same, fixed, strict=True)):
        return False
    whole, rest = rows // count, rows % count
    sizes = tuple(d[0] for d in dims[:-2])
    many, few = [], []
    for i, tensor in enumerate(tensors):
        outer = tuple(d[1 + i] for d in dims[:-2])
        if same[i]:
            row = tensor.viewed((count, columns), (0, 1))
            tile = scratch(row.shape, element=row.element)
            copy(program, target, row, tile)
            many.append(tile.viewed((*sizes, whole, count * columns), (*outer, 0, 1)))
        else:
            many.append(tensor.viewed((*sizes, whole, count * columns), (*outer, count * steps[i], units[i])))
        left = tensor.shift(whole * count * steps[i])
        few.append(left.viewed((*sizes, rest, columns), (*outer, steps[i], units[i])))
    for result, *operands in (many, few):
        write_map(program, target, expr, operands, result)
    return True


def copy(program: Program, target: Target, source: Tensor, result: Tensor) -> None:
    """result = source, of equal shape and element type."""
    if result.size == 0:
        return
    for way in (_picked, _mirrored, _turns):
        if way(program, target, source, result):
            return
    write_map(program, target, ex.IDENTITY, [source], result)


def no_zeros(program: Program, given: Tensor) -> None:
    """See to it that a zero in a dense tensor of integers is found: NumPy's kernels then say what is wrong."""
    args: list[int | Ref] = [given.ref, Ref(STATUS_WORD), given.size, BLOCK]
    program.call(Nonzero(given.element), args, -(-given.size // BLOCK), given.size * 0.1)


def _picked(program: Program, target: Target, source: Tensor, result: Tensor) -> bool:
    """Copy rows shorter than a vector that lie apart in the source and none in the result, or return False."""
    dims = loops([result, source])
    if len(dims) != 2 or dims[1][0] >= target.lanes or dims[1][1] != 1 or dims[0][1] != dims[1][0]:
        return False
    (rows, _, step), (count, _, apart) = dims
    if not suits(rows, count, source.itemsize) or not 0 < (count - 1) * apart < step < 2**31 // (8 * target.lanes):
        return False
    pick(program, target, result, source, step, [at * apart for at in range(count)])
    return True


def _mirrored(program: Program, target: Target, source: Tensor, result: Tensor) -> bool:
    """Copy pixels with the order of their elements turned round, or return False."""
    *outer, (pixels, *steps), (count, *units) = [(1, 0, 0), *loops([result, source])]
    if units != [1, -1] or steps != [count, count] or not reorders(target, count, pixels):
        return False
    order = tuple(range(count))[::-1]
    reorder(program, source.shift(1 - count), result, order, pixels, [d for d in outer if d[0] > 1])
    return True


def reorders(target: Target, count: int, pixels: int) -> bool:
    """Whether vectors are shuffled to bring the elements of pixels of ``count`` into another order."""
    return 2 <= count <= MOST_REORDERED and pixels >= target.lanes


def reorder(
    program: Program, source: Tensor, result: Tensor, order: tuple[int, ...], pixels: int,
    outer: Sequence[tuple[int, ...]] = (),
) -> None:  # fmt: skip
    """Copy so many pixels without gaps, whose element i is number ``order[i]`` of the source's, for ``outer`` loops."""
    _shuffle(program, Reordered(order, max(1, len(outer)), source.element), result, source, pixels, 0, outer)


def _turns(program: Program, target: Target, source: Tensor, result: Tensor) -> bool:
    """Copy by shuffling vectors or by transposing tiles where the contiguous dimension of the two differs."""
    dims = loops([result, source])
    if dims[-1][2] == 1 or dims[-1][1] != 1:
        return False
    across = next((d for d in dims[:-1] if d[2] == 1), None)
    if across is None:
        if dims[-1][2] == 0:
            return False
        across = (1, 0, 1)
    outer = [d for d in dims[:-1] if d is not across]
    size, step_out, _ = across
    columns, _, step_in = dims[-1]
    unit = source.itemsize
    for channels, pixels, pixel, plane, apart in (
        (columns, size, step_out, step_in, False),
        (size, columns, step_in, step_out, True),
    ):
        thin = pixels < target.lanes
        if (
            2 <= channels <= min(MOST_CHANNELS, target.lanes)
            and pixel == channels
            and not (thin and _unmasked(target, unit))
        ):
            again = next((d for d in outer if d[2] == 0 and 1 < d[0] <= MOST_COPIES), None)
            outer = [d for d in outer if d is not again]
            copies, step = (int(again[0]), unit * again[1]) if again is not None else (1, 0)
            turn = Interleave(int(channels), apart, max(1, len(outer)), source.element, copies, thin)
            _shuffle(program, turn, result, source, pixels, unit * plane, outer, [step])
            return True
    if (2 <= abs(step_in) <= MOST_APART or step_in == -1) and size == 1 and columns >= target.lanes:
        _shuffle(program, Strided(int(step_in), max(1, len(outer)), source.element), result, source, columns, 0, outer)
        return True
    if step_in == 0:
        return False
    lines = portion(columns, TURNED)
    outer = [(1, 0, 0)] * (TURNED_OUTER - len(outer)) + outer
    args: list[int | Ref] = [result.ref, source.ref, size, columns, unit * step_out, unit * step_in, lines]
    for n, to, at in outer:
        args += [n, unit * to, unit * at]
    wide = target.lanes
    if unit * step_out % EXCLUDING == 0 and min(size, columns) >= 2 * wide and 2 * wide * unit <= CACHE_LINE:
        wide *= 2
    items = math.prod(d[0] for d in outer) * -(-size // wide) * -(-columns // lines)
    program.call(Transpose(len(outer), wide, source.element), args, items, result.size * 0.3, even=False)
    return True


def _unmasked(target: Target, unit: int) -> bool:
    """Whether elements of so many bytes are masked one by one."""
    return target.name != "avx512" and unit < 4


def _shuffle(
    program: Program, kernel: Interleave | Reordered | Strided, result: Tensor, source: Tensor, pixels: int, plane: int,
    outer: Sequence[tuple[int, ...]], more: Sequence[int] = (),
) -> None:  # fmt: skip
    """Call a kernel for rows of pixels, as many at once as make an item worth its divisions."""
    dims = _rows_last([*outer, (1, 0, 0)] if not outer else list(outer))
    rows, row_block = dims[-1][0], portion(dims[-1][0], BLOCK // pixels)
    args: list[int | Ref] = [result.ref, source.ref, pixels, BLOCK, row_block, plane]
    for n, to, at in dims:
        args += [n, result.itemsize * to, result.itemsize * at]
    args += more
    items = math.prod(d[0] for d in dims[:-1]) * -(-rows // row_block) * -(-pixels // BLOCK)
    program.call(kernel, args, items, result.size * 0.2, even=False)


def _rows_last(dims: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The loops with the longest as the last."""
    longest = max(range(len(dims)), key=lambda d: dims[d][0])
    return [*dims[:longest], *dims[longest + 1 :], dims[longest]]


def _like(program: Program, target: Target, operand: Tensor, result: Tensor) -> Tensor:
    """A copy of an operand with its dimensions in the result's order."""
    extra = len(result.shape) - len(operand.shape)
    order = sorted(range(len(operand.shape)), key=lambda d: -result.strides[d + extra])
    made = scratch(operand.shape, order, operand.element)
    copy(program, target, operand, made)
    return made


def loops(tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
    """(size, stride of each tensor) of the loops over the first tensor's shape, outermost first: sorted by its strides,
    without those of size 1, neighbours merged where every tensor allows it."""
    shape = tensors[0].shape
    dims = [(n, *(t.strides[d] for t in tensors)) for d, n in enumerate(shape) if n != 1]
    dims.sort(key=lambda d: -d[1])
    merged: list[tuple[int, ...]] = []
    for dim in dims:
        if merged and all(a == b * dim[0] for a, b in zip(merged[-1][1:], dim[1:], strict=True)):
            merged[-1] = (merged[-1][0] * dim[0], *dim[1:])
        else:
            merged.append(dim)
    return merged or [(1, *[1] * len(tensors))]
