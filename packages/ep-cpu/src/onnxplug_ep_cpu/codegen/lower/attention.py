"""Calling the attention kernel: packing of the keys, tiles, scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract.records import record
from onnxplug.contract.sizes import greatest, least, portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.attention import Attention
from onnxplug_ep_cpu.codegen.kernels.attention_blocks import AttentionInBlocks
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import converted
from onnxplug_ep_cpu.codegen.lower.matrices import pack, turned
from onnxplug_ep_cpu.codegen.lower.tiles import most_rows
from onnxplug_ep_cpu.codegen.program import Ref, grab_of
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

FEW_ROWS, FEW_ON_CACHE = 5, 9
"""Query rows from which packing the keys pays, and from which where these lie one behind the other: to pack them is then to copy a
cache for each token."""
TILE_ROWS = 4
"""Of a register tile for few rows, or where their number varies."""
MANY_ROWS = 64
"""Query rows from which packing the values pays."""
MANY_KEYS = 4096
"""Keys from which they are taken a block at a time: of fewer, the scores of some rows leave room in the cache."""
MOST_ROWS = 8
"""Of a register tile."""
KEYS, TILES = 512, 32
"""Keys and tiles of rows of a block."""


@record(frozen=True, slots=True)
class Heads:
    """Queries [batch, heads, rows, depth], keys [batch, key heads, keys, depth], values [batch, key heads, keys,
    columns]. Keys and values may be of 16 bits."""

    q: Tensor
    k: Tensor
    v: Tensor

    @property
    def scores(self) -> Ints:
        return (*self.q.shape[:3], self.k.shape[2])

    @property
    def fine(self) -> bool:
        """Whether the kernel does these shapes."""
        q, k, v = self.q.shape, self.k.shape, self.v.shape
        same = q[0] == k[0] == v[0] and k[1] == v[1] and k[2] == v[2] and q[3] == k[3]
        return same and k[1] > 0 and q[1] % k[1] == 0 and 0 not in (*q, *k, *v)


def attend(
    b: Lowering,
    heads: Heads,
    out: Tensor,
    expr: ex.Expr = ex.IDENTITY,
    leaves: Sequence[Tensor] = (),
    guarded: bool = False,
    seen: int | None = None,
    hidden: bool = False,
) -> None:
    """out [batch, heads, rows, columns] = softmax(expr(q k^T, leaves)) v. ``seen``: row i attends to the first seen + i
    keys. ``guarded``: NaN rows of the softmax are zeros; ``hidden``: those without a finite score are."""
    views = [leaf.broadcast(heads.scores) for leaf in leaves]
    if heads.q.shape[2] == 1 and seen is not None:  # the one row's keys are all there are
        heads, views, seen = _first_keys(heads, seen), [_first(view, 3, seen) for view in views], None
    heads, out, views = _rows_for_heads(heads, out, views)
    q = _contiguous(b, heads.q)
    batch, count, m, depth = q.shape
    keys, columns = heads.v.shape[2:]
    lanes, few = b.target.lanes, m < (FEW_ON_CACHE if heads.k.strides[2:] == (depth, 1) else FEW_ROWS)
    held = heads.k.element
    if held != heads.v.element or not few or min(depth, columns, keys) < lanes:
        held, heads = "float32", Heads(heads.q, _widened(b, heads.k), _widened(b, heads.v))
    v = _contiguous(b, heads.v)
    across_keys = 0 if few else 2 if keys >= 2 * lanes else 1
    if few:
        k, rows = _contiguous(b, heads.k), 1 if m < TILE_ROWS else TILE_ROWS
        across = _across(b, rows, columns)
    else:
        k, across = pack(b, turned(heads.k, True), across_keys * lanes), 2 if columns >= 2 * lanes else 1
        rows = _tile_rows(b, m, max(across, across_keys))
    packed = m >= MANY_ROWS and columns >= lanes
    if packed:
        v = pack(b, v, across * lanes)
    tiles = -(-m // rows)
    in_blocks = not few and keys >= MANY_KEYS
    panel = across_keys * lanes
    step = -(-keys // -(-keys // KEYS) // panel) * panel if in_blocks else keys
    line = 4 * lanes * -(-step // lanes)
    block = _tiles_per_item(b, tiles, TILES if in_blocks else _fitting(b, rows * line), batch * count)
    blocks = -(-tiles // block)
    items = batch * count * blocks
    room = _whole_lines(4 * block * rows)
    parts, start = room, room
    if in_blocks:
        parts = 3 * room
        start = parts + 4 * block * rows * across * lanes * -(-columns // (across * lanes)) + 4 * panel
    slot = _whole_lines(start + block * rows * line + 4 * lanes)
    grab = grab_of(items, b.threads)
    scratch = b.scratch((-(-items // grab) * slot,), element="int8")
    kernel = (AttentionInBlocks if in_blocks else Attention)(
        rows, across_keys, across, expr, tuple((t.element, "v" if t.strides[3] else "s") for t in views),
        (keys < lanes, columns < lanes), seen is not None, guarded, hidden, packed, held,
    )  # fmt: skip
    args: list[int | Ref] = [
        q.ref, k.ref, v.ref, out.ref, scratch.ref, m, keys, depth, columns, count, count // heads.k.shape[1], block, blocks,
        grab, slot, start, line, *(t.itemsize * s for t in (q, k, v, out) for s in t.strides[:3]),
        seen or 0, step, room, parts,
    ]  # fmt: skip
    for view in views:
        args += [view.ref, *(s * view.itemsize for s in view.strides[:3])]
    flops = 2.0 * batch * count * m * keys * (depth + columns)
    steps = batch * count * m * keys / lanes
    b.program.call(kernel, args, items, flops / (6 * lanes) + steps * (8 + 0.3 * ex.cost(expr)))


def _widened(b: Lowering, tensor: Tensor) -> Tensor:
    """The tensor in float32, laid out as it is."""
    if tensor.element == "float32":
        return tensor
    wide = b.scratch(tensor.shape, sorted(range(4), key=lambda d: (tensor.strides[d] > 0, -tensor.strides[d])))
    converted(b.program, b.target, tensor, wide)
    return wide


def takes(shape: Ints, leaf: Tensor) -> bool:
    """Whether the kernel reads a further operand of scores of this shape."""
    if leaf.element not in ("float32", "bool") or len(leaf.shape) > 4:
        return False
    view = leaf.broadcast(shape)
    return view.strides[3] in (0, 1) or shape[3] == 1


def _rows_for_heads(heads: Heads, out: Tensor, views: list[Tensor]) -> tuple[Heads, Tensor, list[Tensor]]:
    """With one query row, the heads that share keys become rows: keys are read once for all of them."""
    batch, count, m, _ = heads.q.shape
    shared = count // heads.k.shape[1]
    if m != 1 or shared == 1:
        return heads, out, views

    def split(t: Tensor) -> Tensor:
        b_stride, h_stride, _, inner = t.strides
        shape = (batch, count // shared, shared, t.shape[3])
        return Tensor(t.buffer, shape, (b_stride, shared * h_stride, h_stride, inner), t.offset, t.element)

    return Heads(split(heads.q), heads.k, heads.v), split(out), [split(view) for view in views]


def _first_keys(heads: Heads, count: int) -> Heads:
    return Heads(heads.q, _first(heads.k, 2, count), _first(heads.v, 2, count))


def _first(tensor: Tensor, axis: int, count: int) -> Tensor:
    """The first entries of a dimension, as far as there are so many."""
    shape = (*tensor.shape[:axis], min(count, tensor.shape[axis]), *tensor.shape[axis + 1 :])
    return tensor.viewed(shape, tensor.strides)


def _contiguous(b: Lowering, tensor: Tensor) -> Tensor:
    """The tensor with contiguous rows."""
    return tensor if tensor.strides[3] == 1 or tensor.shape[3] == 1 else b.copied(tensor, range(4))


def _tile_rows(b: Lowering, m: int, vectors: int) -> int:
    """Rows of a register tile: few tiles, little of them computed twice. Where shapes vary, one of few numbers."""
    most = min(most_rows(b.target, vectors), MOST_ROWS)
    if b.prepared.varies:
        return most if m >= most else min(most, TILE_ROWS)
    return min(range(1, min(most, m) + 1), key=lambda r: (-(-m // r) * (r + 0.7), -r))


def _across(b: Lowering, rows: int, columns: int) -> int:
    """Vectors of values that a tile of few rows takes: as many as there are registers for sums, in powers of two."""
    most = min(8, (b.target.registers - 8) // rows)
    return next((vectors for vectors in (8, 4, 2) if vectors <= most and columns >= vectors * b.target.lanes), 1)


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _fitting(b: Lowering, tile_bytes: int) -> int:
    """Tiles whose scores stay in a quarter of the second-level cache."""
    return greatest(1, b.target.l2 // 4 // tile_bytes)


def _tiles_per_item(b: Lowering, tiles: int, most: int, heads: int) -> int:
    """As many tiles as that, but items enough to share out."""
    wanted = -(-tiles * heads // (b.threads * 8))
    return portion(least(tiles, most), greatest(wanted, 4))
