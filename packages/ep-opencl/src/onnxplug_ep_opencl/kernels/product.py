"""Products of matrices: MatMul, Gemm, and the launch that convolutions share with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import PANELS, Call, Lower, text_type
from onnxplug_ep_opencl.kernels.planes import Layout
from onnxplug_ep_opencl.kernels.strips import launch_strips
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import AnyTile, Work, by_registers, usual
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_kernel_text import product
from onnxplug_kernel_text.elementwise import Operand
from onnxplug_kernel_text.factors import Factor, Packed, Shifted, Windows, free, operand_of, pattern
from onnxplug_kernel_text.layout import Strides, broadcast, dense, space
from onnxplug_kernel_text.local_product import LocalTile, local_product
from onnxplug_kernel_text.strips import Strips
from onnxplug_kernel_text.tile import Tile
from onnxplug_kernel_text.types import SIZES, accumulated, literal

_SHARE = 8
"""Work-items for each of the device's units, where there is enough to do: the last ones to finish are not waited for long."""
_BLOCKS = 2
"""The same where there are so few panels of columns that rows are divided: each block of rows brings the panel near again. One unit
does not wait for others."""

_DEEP = 384
"""Depth up to which a product is computed as a whole."""
_PART, _PACKED_PART = 160, 256
"""Depth of the parts that deeper ones are divided into, where the panel is copied near and where it is read as it was packed: a part of a
panel stays in the first cache, with the other factor's. The same for all tiles, since left factors are packed part by part."""
_SUMS = 256 << 10
"""Bytes of sums that wait while a work-item goes through its panels part by part: they are to stay in the second cache."""
_FEW = 16
"""Panels of columns up to which it pays to have the last one computed in a loop of its own where it is half empty."""

Parts = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Side:
    """A factor, another operand or the result: where it is, its type, its strides over the batch, over rows and over columns. ``form`` is
    how a factor lies: by these strides, in panels (``Packed``), or as the windows of an image (``Windows`` or ``Shifted``, with the values
    of its arguments; the latter in a ``layout`` that the image is brought into, with the ``table`` of that)."""

    ref: Ref
    element: str
    batch: Strides
    row: int = 0
    column: int = 0
    form: type[Packed] | type[Windows] | type[Shifted] | None = None
    windows: tuple[int, ...] = ()
    layout: Layout | None = None
    table: Ref | None = None

    def factor(self, batch: Strides) -> Factor:
        """As kernel text has it, with the batch's joined dimensions."""
        if self.form is Packed:
            return Packed(Operand(self.element, pattern(batch)))
        if self.form is Shifted:
            return Shifted(Operand(self.element, pattern(batch)))
        if self.form is Windows:
            return Windows(Operand(self.element, pattern(batch)), (len(self.windows) - 1) // 6)
        return Operand(self.element, pattern((*batch, self.row, self.column)))

    def free(self, batch: Strides) -> list[int]:
        """The strides that are arguments of the kernel."""
        return free(batch) if self.form is not None else free((*batch, self.row, self.column))


@dataclass(frozen=True)
class Product:
    """A batch of products of (rows, depth) and (depth, columns) matrices. ``body`` makes ``y`` of ``x``, an element, and ``e0``, ``e1``,
    ..., the elements of ``others`` there. ``parts`` are the extents of the result's dimensions that make up the batch, the rows and the
    columns, where these are whole dimensions. Panels of packed factors are as wide as ``tile`` says."""

    left: Side
    right: Side
    out: Side
    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    tile: AnyTile
    others: Sequence[Side] = ()
    body: str = "y = x;"
    parts: Parts | None = None

    def side(self, ref: Ref, type_: str, strides: Strides) -> Side | None:
        """Another operand with these strides over the result's dimensions; None where these do not make one stride over rows and one over
        columns."""
        if self.parts is None:
            return None
        batch, rows, columns = self.parts
        first, second = len(batch), len(batch) + len(rows)
        row, column = joined(rows, strides[first:second]), joined(columns, strides[second:])
        return None if row is None or column is None else Side(ref, type_, strides[:first], row, column)


def joined(shape: Sequence[int], strides: Strides) -> int | None:
    """The stride of dimensions walked as one."""
    joined = space(shape, [strides])
    return joined.strides[0][0] if len(joined.shape) == 1 else None


def tile_of(call: Call, work: Work, make: Callable[[Call], Product | None]) -> AnyTile:
    """The tile of the product that ``make`` makes of a call: the one that is decided, the fastest where tiles are measured, or the usual
    one."""
    if call.tile is not None:
        return call.tile
    if call.tuner is None:
        return usual(call.target, work, call.owned.widths if work.left == "packed" else ())
    return call.tuner.best(call, work, make)


def multiply(target: Target, name: str, made: Product, scratch: Ref) -> Job:
    """The launch of a product; ``scratch`` is where its workspace begins, in bytes."""
    points = math.prod(made.batch)
    if points * made.rows * made.columns == 0:
        return Job()
    sides = [made.left, made.right, *made.others, made.out]
    walked = space(made.batch, [side.batch for side in sides])
    left, right, *others, out = (side.factor(own) for side, own in zip(sides, walked.strides, strict=True))
    assert isinstance(out, Operand) and not isinstance(left, Windows | Shifted)
    operands = [operand_of(other) for other in others]
    strides = [n for side, own in zip(sides, walked.strides, strict=True) for n in side.free(own)]
    scalars = [*walked.shape[1:], *made.right.windows, *strides]
    sizes = [made.rows, made.columns, made.depth]
    refs = [side.ref for side in sides]
    tile = made.tile
    if isinstance(tile, Strips):
        assert isinstance(left, Operand)
        text = left, operand_of(right), operands, out, made.body
        return launch_strips(
            target, name, tile, made.right.windows[1:], text, refs, walked.shape, made.rows, strides, scratch
        )
    if isinstance(tile, LocalTile):
        assert isinstance(left, Operand) and not isinstance(right, Packed | Shifted)
        source = local_product(name, left, right, operands, out, made.body, tile)
        edge, side = tile.edge, tile.side
        items = (-(-made.columns // edge) * side, -(-made.rows // edge) * side, points)
        return Job([Launch(source, name, refs, _i64(*sizes, *scalars), items, (side, side, 1))])
    size = SIZES[accumulated(made.out.element)]
    bands, jobs = -(-made.rows // tile.rows), -(-made.columns // tile.columns) * points
    once = bands == 1 and made.left.form is not Packed  # a panel is read once: nothing is to stay near
    part = made.depth if once else part_of(made.depth, made.right)
    parts = part < made.depth
    tiles = bands * tile.rows * tile.columns
    share = max(1, -(-jobs * tiles * size // (_SUMS * target.units))) if parts else _SHARE
    workers = min(jobs, share * target.units)
    wanted = _BLOCKS * target.units if target.units > 1 else 1
    block = -(-bands // min(bands, -(-wanted // jobs)))
    blocks = -(-bands // block)
    before: list[Launch] = []
    first = scratch.offset // size
    used, layout = 0, made.right.layout
    room = 0 if made.right.form is Packed else (part + 1) * tile.columns
    room += -(-jobs // workers) * min(block, bands) * tile.rows * tile.columns if parts else 0
    if room:
        used = workers * blocks * room
        refs.insert(2, Ref(scratch.number, size, first))
    if layout is not None:
        assert made.right.table is not None
        images = Ref(scratch.number, size, first + used)
        before.append(layout.launch(f"{name}_planes", made.right.element, refs[1], images, tile.columns))
        refs[1:2] = [images, made.right.table]
        used += layout.count * layout.image + tile.columns
    source = product.product(name, left, right, operands, out, made.body, tile, parts, _is_narrow(made.columns, tile))
    numbers = _i64(*sizes, jobs, workers, block, *((part, room) if parts else ()), *scalars)
    return Job([*before, Launch(source, name, refs, numbers, (workers, blocks), (1, 1))], used * size)


def _is_narrow(columns: int, tile: Tile) -> bool:
    """Whether the last panel has half its columns or fewer, and is more than a few hundredths of the work."""
    over = columns % tile.columns
    return tile.vectors > 1 and 0 < over <= tile.vectors // 2 * tile.width and columns < _FEW * tile.columns


def part_of(depth: int, right: Side) -> int:
    """The depth of the parts that a product's depth is divided into, which are about equal."""
    part = _PACKED_PART if right.form is Packed else _PART
    parts = 1 if depth <= _DEEP or right.form is Windows else -(-depth // part)
    return -(-depth // parts)


def _i64(*numbers: int) -> list[np.generic]:
    return [np.int64(n) for n in numbers]


def launched(make: Callable[[Call], Product]) -> Lower:
    """The lowering of an operator that is a product."""
    return lambda call: multiply(call.target, call.op_type, make(call), call.scratch(1))


def packs(node: NodeView, target: Target) -> tuple[int, ...]:
    """The second operand, where it is constant and packed for tiles in registers."""
    value = node.inputs[1]
    return (1,) if value is not None and value.constant is not None and by_registers(target) else ()


def panels(matrices: np.ndarray, lanes: int) -> np.ndarray:
    """(..., lines, depth) matrices in panels of ``lanes`` lines, as ``factors.Packed`` says."""
    *batch, lines, depth = matrices.shape
    held = np.float32 if matrices.dtype.itemsize == 2 else matrices.dtype
    count = -(-lines // lanes)
    padded = np.zeros((*batch, count * lanes, depth), held)
    padded[..., :lines, :] = matrices
    return np.swapaxes(padded.reshape(*batch, count, lanes, depth), -1, -2)


def left_panels(call: Call, matrices: Callable[[], np.ndarray], rows: int, right: Side) -> Ref:
    """A constant left factor, (..., rows, depth) matrices, in panels of so many ``rows``: part by part, as the product with ``right``
    takes them."""
    whole = right.form is Windows

    def made() -> np.ndarray:
        packed = panels(matrices(), rows)
        depth = packed.shape[-2]
        part = max(1, part_of(depth, right))
        lanes = packed.shape[-3] * rows
        pieces = [
            packed[..., k : k + part, :].reshape(*packed.shape[:-3], lanes * min(part, depth - k))
            for k in range(0, depth, part)
        ]
        return np.concatenate(pieces, axis=-1) if pieces else packed

    return call.owned.ref(("whole panels" if whole else PANELS, rows), made)


def matmul(call: Call) -> Product:
    """MatMul."""
    a, b = call.input(0).shape, call.input(1).shape
    return matrices(call, matmul, (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b)


def fractions(node: NodeView) -> str | None:
    """Why a Gemm is declined: its arithmetic is in its type, where integers have no fractions to scale with."""
    value = node.inputs[0]
    whole = all(float(node.attributes.get(name, 1.0)).is_integer() for name in ("alpha", "beta"))
    if whole or value is None or value.dtype is None or value.dtype.kind not in "iu":
        return None
    return "alpha and beta of integers are whole numbers only"


def gemm(call: Call) -> Product:
    """Gemm."""
    alpha, beta = call.attributes.get("alpha", 1.0), call.attributes.get("beta", 1.0)
    type_ = text_type(call.output().dtype)
    value, others = "x" if alpha == 1 else f"{literal(alpha, type_)} * x", []
    if call.given(2) is not None and beta != 0:
        row, column = broadcast(call.input(2).shape, call.output().shape)
        others = [Side(call.read(2), type_, (), row, column)]
        value += " + e0" if beta == 1 else f" + {literal(beta, type_)} * e0"
    turned = bool(call.attributes.get("transA", 0)), bool(call.attributes.get("transB", 0))
    return matrices(call, gemm, call.input(0).shape, call.input(1).shape, turned, others, f"y = {value};")


def matrices(
    call: Call,
    make: Callable[[Call], Product],
    a: tuple[int, ...],
    b: tuple[int, ...],
    turned: tuple[bool, bool] = (False, False),
    others: Sequence[Side] = (),
    body: str = "y = x;",
) -> Product:
    """The product of two stacks of matrices that lie densely, ``turned`` as said; ``make`` is who asks for it."""
    type_ = text_type(call.output().dtype)
    (rows, depth), (_, columns) = (m[:-3:-1] if t else m[-2:] for m, t in zip((a, b), turned, strict=True))
    batch = tuple(np.broadcast_shapes(a[:-2], b[:-2]))
    whole = len(call.output().shape) == len(batch) + 2
    parts: Parts | None = (batch, (rows,), (columns,)) if whole else None
    if math.prod(b[:-2]) == 1 and not turned[0]:  # one matrix for all rows
        parts = ((), a[:-1], (columns,)) if whole else None
        rows, batch, a, b = math.prod(a[:-1]), (), (math.prod(a[:-1]), a[-1]), b[-2:]
    left = Side(call.read(0), type_, _stack(a, batch, rows * depth), *((1, rows) if turned[0] else (depth, 1)))
    lies = "packed" if 1 in call.packed else "turned" if turned[1] else "as it is"
    work = Work(type_, "turned" if turned[0] else "as it is", lies, math.prod(batch), rows, columns, depth)
    tile = tile_of(call, work, make)
    if 1 in call.packed:
        assert isinstance(tile, Tile)
        lanes = tile.columns
        ref = call.owned.ref((PANELS, lanes), lambda: panels(np.swapaxes(_stacked(call, turned[1]), -1, -2), lanes))
        right = Side(ref, type_, _stack(b, batch, -(-columns // lanes) * lanes * depth), form=Packed)
    else:
        right = Side(
            call.read(1), type_, _stack(b, batch, columns * depth), *((1, depth) if turned[1] else (columns, 1))
        )
    out = Side(call.write(), type_, tuple(s * rows * columns for s in dense(batch)), columns, 1)
    return Product(left, right, out, batch, rows, columns, depth, tile, others, body, parts)


def _stack(shape: Sequence[int], batch: Sequence[int], each: int) -> Strides:
    """Strides over the batch of a stack of matrices of ``each`` elements."""
    return tuple(s * each for s in broadcast(shape[:-2], batch))


def _stacked(call: Call, turned: bool) -> np.ndarray:
    """The constant second operand as (..., depth, columns) matrices."""
    value = call.input(1).constant
    assert value is not None
    value = value[:, None] if value.ndim == 1 else value
    return np.swapaxes(value, -1, -2) if turned else value
