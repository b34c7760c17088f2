"""MatMulNBits and MatMulBnb4: weights of 2, 4 or 8 bits in blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.bytedots import quad_form
from onnxplug_ep_cpu.codegen.kernels.digits import (
    CHUNK,
    DIGITS,
    HEAD,
    ROUGH,
    Digits,
    NBitsDigits,
    most,
    most_rows,
    multiplies,
)  # fmt: skip
from onnxplug_ep_cpu.codegen.kernels.nbits import VECTORS, NBits, NBitsFew
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.quantized import MS, constant_numbers
from onnxplug_ep_cpu.codegen.lower.support import require, typed
from onnxplug_ep_cpu.codegen.lower.tiles import most_rows as most_tile_rows
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor
from onnxplug_kernels.ops.contrib_matmul import FP4, NF4

FEW = 4
"""Rows up to which weights are used as they are unpacked."""
BYTES = 4
"""The accuracy level of MatMulNBits that lets operands be rounded to bytes."""


def _supports(node: NodeView) -> str | None:
    a, b, scales, zeros, order, bias = [*node.inputs, None, None, None][:6]
    reason = typed(a) or typed(scales) or typed(bias) or typed(node.outputs[0])
    if reason is not None:
        return reason
    if order is not None:
        return "blocks of rows in another order are not generated"
    if any(v is None or v.constant is None for v in (b, scales)) or (zeros is not None and zeros.constant is None):
        return "weights that are computed are not generated"
    if node.attributes.get("weight_prepacked", 0) or node.attributes.get("bits", 4) not in (2, 4, 8):
        return "only weights of 2, 4 or 8 bits in the portable layout are generated"
    return None


@lowering("MatMulNBits", domain=MS, supports=_supports)
def matmul_nbits(b: Lowering, node: NodeView) -> None:
    """A times dequantized weights, plus bias."""
    (x, w, scales, zeros, _, bias), (y,) = [*node.inputs, None, None, None][:6], node.outputs
    assert x is not None and w is not None and scales is not None and y is not None
    given = node.attributes
    bits, k, n, block = given.get("bits", 4), given["K"], given["N"], given["block_size"]
    width = VECTORS * b.target.lanes
    blocks = -(-k // block)
    packed = b.prepared.packed(w, ("nbits", width, n, bits), lambda array: words_of(array, n, width))
    step = b.prepared.packed(scales, ("nbits", width, n), lambda array: by_panel(array.reshape(n, blocks), width))
    offset, zero = step, None if zeros is not None else 2 ** (bits - 1)
    if zeros is not None:
        points = zeros
        held = -(-blocks * bits // 8) if points.dtype == np.uint8 else blocks
        require(None if math.prod(b.shape(points)) == n * held else "the zero points do not suit the weights")
        offset = b.prepared.packed(
            scales,
            ("nbits offsets", width, n, bits, zeros.name),  # equal scales may be one constant of several nodes
            lambda array: by_panel(_offsets(array.reshape(n, blocks), points, bits), width),
        )
    exact = (
        zeros is not None and zeros.dtype != np.uint8
    )  # onnxruntime keeps operands beside zero points that are floats
    digits = ROUGH if given.get("accuracy_level", 0) == BYTES and not exact else DIGITS
    write_product(b, Weights(bits, block, k, n, packed, step, offset, zero, digits=digits), x, y, bias)


def _floats_of_four_bits(node: NodeView) -> str | None:
    a, w, absmax = node.inputs
    reason = typed(a) or typed(absmax) or typed(node.outputs[0])
    if reason is not None:
        return reason
    if any(v is None or v.constant is None for v in (w, absmax)):
        return "weights that are computed are not generated"
    given = node.attributes
    if given["quant_type"] not in (0, 1) or not given.get("transB", 1):
        return "weights that are not transposed are not generated"
    return "blocks across columns are not generated" if given["K"] % given["block_size"] else None


@lowering("MatMulBnb4", domain=MS, supports=_floats_of_four_bits)
def matmul_bnb4(b: Lowering, node: NodeView) -> None:
    """A times weights that are places in a table of 16 numbers."""
    (x, w, absmax), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and absmax is not None and y is not None
    k, n, block = (int(node.attributes[name]) for name in ("K", "N", "block_size"))
    width = VECTORS * b.target.lanes
    packed = b.prepared.packed(w, ("bnb4", width, n), lambda array: words_of(array >> 4 | array << 4, n, width))
    step = b.prepared.packed(absmax, ("bnb4", width, n), lambda array: by_panel(array.reshape(n, k // block), width))
    table = NF4 if node.attributes["quant_type"] else (*FP4, *(-number for number in FP4))
    write_product(b, Weights(4, block, k, n, packed, step, step, None, table), x, y, None)


@record(frozen=True, slots=True)
class Weights:
    """Weights (k, n) in panels of columns, as the kernels take them. ``zero``: the zero point of all, None where blocks have their own.
    ``digits``: of the operand's numbers, where they are taken apart."""

    bits: int
    block: int
    k: int
    n: int
    packed: np.ndarray
    step: np.ndarray
    offset: np.ndarray
    zero: int | None
    table: tuple[float, ...] = ()
    digits: int = DIGITS


def write_product(b: Lowering, w: Weights, x: ValueView, y: ValueView, bias: ValueView | None) -> None:
    """x times the weights, plus bias, into y."""
    bits, block, k, n = w.bits, w.block, w.k, w.n
    width = VECTORS * b.target.lanes
    panels, blocks = -(-n // width), -(-k // block)
    shape = b.shape(y)
    m = math.prod(shape[:-1])
    held = _gapped(b, y, shape, panels * width) if panels * width != n or bias is not None else b.output(y)
    if m == 0 or n == 0:
        return
    source = b.dense(x)
    tables = [b.tensor_of(array).ref for array in (w.packed, w.step, w.offset)]
    row = next((s for d, s in zip(held.shape[-2::-1], held.strides[-2::-1], strict=True) if d != 1), 0)
    panel = w.packed.nbytes // panels
    lanes = b.target.lanes
    args: list[int | Ref]
    whole = k % block == 0 and not w.table
    few = m <= FEW and whole
    if whole and block % CHUNK == 0 and block <= most(bits) and _by_bytes(b, w, m):
        together = m if w.digits == DIGITS else _rough_rows(b, m)
        args = [*_digits(b, source, w), *tables, held.ref, blocks, 4 * row, panel, m]
        kernel: Any = NBitsDigits(bits, block, together, w.zero is None, w.digits)
        b.program.call(kernel, args, panels, panels * width * k * (0.5 + m * w.digits / DIGITS) / (4.0 * lanes))
    elif few and block & (block - 1) == 0 and block >= max(lanes, 32 // bits):
        args = [source.ref, _scaled(b, source, bits).ref, *tables, held.ref, blocks, 4 * k, 4 * row, panel]
        kernel = NBitsFew(bits, block, m, w.zero)
        b.program.call(kernel, args, panels, panels * width * k * (1.0 + m) / (2.4 * lanes))
    else:
        depth = b.target.l1 // (8 * width)  # half of the cache for weights that are floats
        kernel = NBits(bits, block, max(block, depth // block * block), tile_rows(b.target, m), w.zero, w.table)
        args = [source.ref, *tables, held.ref, m, k, 4 * k, 4 * row, panel, blocks]
        b.program.call(kernel, args, panels, panels * width * k * (2.5 + m) / (4.5 * lanes))
    if bias is not None:
        result = b.output(y)
        write_map(b.program, b.target, (("leaf", 0), ("leaf", 1), ("add", 0, 1)), [held, b.read(bias)], result)


def tile_rows(target: Target, m: int) -> int:
    """Rows of a tile; what remains is done row by row."""
    most = min(most_tile_rows(target, VECTORS), m)
    return min(range(1, most + 1), key=lambda r: (m // r * (2 * r + 3) + m % r * 5, -r))


def _by_bytes(b: Lowering, w: Weights, m: int) -> bool:
    """Whether products of bytes are worth it: as three digits only for a few rows, with instructions that add four."""
    form = quad_form(b.target)
    return multiplies(form, w.bits) if w.digits == ROUGH else form == "vnni" and m <= FEW


def _rough_rows(b: Lowering, m: int) -> int:
    """Rows that go together; to unpack weights takes about as long as the products of a row."""
    return min(range(1, min(m, most_rows(b.target)) + 1), key=lambda r: (-(-m // r) * (r + 1), r))


def _digits(b: Lowering, source: Tensor, w: Weights) -> list[Ref]:
    """The operand's digits, and what is known of its blocks."""
    key = ("digits", source.buffer, source.offset, source.shape, w.bits, w.block, w.zero, w.digits)
    if key not in b.made:
        size, blocks = math.prod(source.shape), math.prod(source.shape) // w.block
        planes, heads = b.scratch((w.digits, size), element="int8"), b.scratch((blocks, HEAD // 4), element="int32")
        args: list[int | Ref] = [source.ref, planes.ref, heads.ref, w.k // w.block]
        b.program.call(Digits(w.bits, w.block, w.zero, w.digits), args, blocks, blocks * w.block * 0.5)
        b.made[key] = planes
        b.made[key, "heads"] = heads
    return [b.made[key].ref, b.made[key, "heads"].ref]


def _scaled(b: Lowering, source: Tensor, bits: int) -> Tensor:
    """The operand with every entry divided by the place value of its weight within half a word."""
    k, values = source.shape[-1], 16 // bits
    places = np.float32(2.0) ** -(bits * (np.arange(k, dtype=np.float32) % values))
    key = ("places", source.buffer, source.offset, source.shape, bits)
    if key not in b.made:
        made = b.made[key] = b.scratch(source.shape)
        factors = constant_numbers(b, places)
        write_map(b.program, b.target, (("leaf", 0), ("leaf", 1), ("mul", 0, 1)), [source, factors], made)
    return b.made[key]


def _gapped(b: Lowering, y: ValueView, shape: tuple[int, ...], columns: int) -> Tensor:
    """Room for whole panels of columns, seen as the result."""
    whole = b.scratch((*shape[:-1], columns))
    view = Tensor(whole.buffer, shape, whole.strides)
    b.define(y, view)
    return view


def words_of(array: np.ndarray, n: int, width: int) -> np.ndarray:
    """[n, blocks, bytes] as [panel][word][column] of 32 bits; lower bits come first along k."""
    words = np.ascontiguousarray(array).reshape(n, -1)
    words = np.pad(words, ((0, -n % width), (0, -words.shape[1] % 4))).view("<u4").view(np.int32)
    return np.ascontiguousarray(words.reshape(-1, width, words.shape[1]).transpose(0, 2, 1))


def by_panel(array: np.ndarray, width: int) -> np.ndarray:
    """[n, blocks] as [panel][block][column]."""
    padded = np.pad(array.astype(np.float32), ((0, -len(array) % width), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, width, array.shape[1]).transpose(0, 2, 1))


def _offsets(scales: np.ndarray, zeros: ValueView, bits: int) -> np.ndarray:
    """-zero point * scale of every block."""
    points = zeros.constant
    assert points is not None
    if points.dtype == np.uint8:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        fields = points.reshape(len(scales), -1, 1) >> shifts & (2**bits - 1)
        points = fields.reshape(len(scales), -1)[:, : scales.shape[1]]
    return np.asarray(-points.reshape(scales.shape).astype(np.float32) * scales, np.float32)
